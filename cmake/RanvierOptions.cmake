set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # installed programs find libraries where the build found them

# Sanitizer builds: -Og compiles much faster than -O1. Inlining small functions halves the time of tests, because
# sanitizers would otherwise check each call. Line numbers are the only debug information that is needed.
if(NOT CMAKE_CXX_FLAGS_SANITIZED)  # project() has made an empty one
  set(sanitized_flags "-Og -g1")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(APPEND sanitized_flags " -finline-small-functions -findirect-inlining")
  endif()
  set(CMAKE_CXX_FLAGS_SANITIZED ${sanitized_flags} CACHE STRING "Flags of the sanitizers' builds" FORCE)
endif()

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
