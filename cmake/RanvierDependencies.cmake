find_package(Threads REQUIRED)
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # CMake 3.30: Boost's own configuration, which every system listed here installs
endif()
find_package(Boost 1.81 REQUIRED COMPONENTS program_options)
find_package(fmt REQUIRED)

# PCRE2 on bytes, for the regular expression that cuts text into words.
find_path(RANVIER_PCRE2_INCLUDE pcre2.h)
find_library(RANVIER_PCRE2_LIBRARY pcre2-8)
if(NOT RANVIER_PCRE2_INCLUDE OR NOT RANVIER_PCRE2_LIBRARY)
  message(FATAL_ERROR "PCRE2 was not found: install libpcre2-dev, or point CMAKE_PREFIX_PATH at it")
endif()
add_library(ranvier_pcre2 INTERFACE)
target_include_directories(ranvier_pcre2 SYSTEM INTERFACE ${RANVIER_PCRE2_INCLUDE})
target_link_libraries(ranvier_pcre2 INTERFACE ${RANVIER_PCRE2_LIBRARY})

# zlib and zstd, for text that is compressed.
find_package(ZLIB REQUIRED)
find_path(RANVIER_ZSTD_INCLUDE zstd.h)
find_library(RANVIER_ZSTD_LIBRARY zstd)
if(NOT RANVIER_ZSTD_INCLUDE OR NOT RANVIER_ZSTD_LIBRARY)
  message(FATAL_ERROR "zstd was not found: install libzstd-dev, or point CMAKE_PREFIX_PATH at it")
endif()
add_library(ranvier_zstd INTERFACE)
target_include_directories(ranvier_zstd SYSTEM INTERFACE ${RANVIER_ZSTD_INCLUDE})
target_link_libraries(ranvier_zstd INTERFACE ${RANVIER_ZSTD_LIBRARY})

if(RANVIER_FUZZ)
  return()  # readers of files need no more
endif()

find_package(MPI REQUIRED COMPONENTS C)
# Only the C interface: mpi.h would otherwise bring C++ bindings that need a library of their own.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

# oneDNN, the CPU's matrix products: 2.6 in Debian 12, 3.x in Ubuntu 24.04. Found by hand, because Debian's
# own package configuration asks for the OpenCL headers that nothing here uses.
find_path(RANVIER_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(RANVIER_DNNL_LIBRARY dnnl)
if(NOT RANVIER_DNNL_INCLUDE OR NOT RANVIER_DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: install libdnnl-dev, or point CMAKE_PREFIX_PATH at it")
endif()
add_library(ranvier_dnnl INTERFACE)
target_include_directories(ranvier_dnnl SYSTEM INTERFACE ${RANVIER_DNNL_INCLUDE})
# Its OpenMP is told to stay on the calling thread: the compute pool has the threads.
find_package(OpenMP REQUIRED COMPONENTS CXX)
target_link_libraries(ranvier_dnnl INTERFACE ${RANVIER_DNNL_LIBRARY} OpenMP::OpenMP_CXX)

# liburing, asynchronous file I/O; what a kernel or a container refuses of it is found out at run time.
find_path(RANVIER_URING_INCLUDE liburing.h)
find_library(RANVIER_URING_LIBRARY uring)
if(NOT RANVIER_URING_INCLUDE OR NOT RANVIER_URING_LIBRARY)
  message(FATAL_ERROR "liburing was not found: install liburing-dev, or point CMAKE_PREFIX_PATH at it")
endif()
add_library(ranvier_uring INTERFACE)
target_include_directories(ranvier_uring SYSTEM INTERFACE ${RANVIER_URING_INCLUDE})
target_link_libraries(ranvier_uring INTERFACE ${RANVIER_URING_LIBRARY})

if(RANVIER_TESTS)
  find_package(doctest REQUIRED)
  find_package(Boost 1.81 QUIET OPTIONAL_COMPONENTS context)  # fibers, for the emulated GPU
endif()
