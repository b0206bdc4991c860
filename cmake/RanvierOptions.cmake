set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # installed programs find libraries where the build found them

# Compiling with -O2 and full debug information takes four times as long with sanitizers as this does; and what -O1 leaves
# as calls (an array's operator[]), which sanitizers follow one by one, takes half the time of tests.
set(CMAKE_CXX_FLAGS_SANITIZED "-O1 -g1 -finline-small-functions -findirect-inlining -fpartial-inlining"
    CACHE STRING "Flags of the sanitizers' builds")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

option(RANVIER_TESTS "Build tests and benchmarks" ON)
option(RANVIER_NATIVE "Compile for this machine's processor; off: RANVIER_ARCH" ON)
set(RANVIER_ARCH "x86-64-v3" CACHE STRING "-march for clusters of unlike machines")
option(RANVIER_JOIN "Compile a dozen sources at a time: cold builds take half as long, and others longer" OFF)
option(RANVIER_FUZZ "Build the fuzz targets, by Clang, and nothing else" OFF)
set(RANVIER_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

find_program(RANVIER_CCACHE ccache)
if(RANVIER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RANVIER_CCACHE})
endif()
