include(RanvierLibraries)
macro(ranvier_require_library name)
  ranvier_find_library(${name})
  if(ranvier_missing)
    message(FATAL_ERROR "${ranvier_missing}")
  endif()
endmacro()

set(ranvier_oldest_boost 1.81)
find_package(Threads REQUIRED)
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # CMake 3.30: Boost's own configuration, which every system listed here installs
endif()
find_package(Boost ${ranvier_oldest_boost} REQUIRED COMPONENTS program_options)
find_package(fmt REQUIRED)

ranvier_require_library(pcre2)  # regular expressions on bytes that split text into words
ranvier_require_library(utf8proc)  # Unicode normalization and character properties
find_package(ZLIB REQUIRED)     # with zstd for compressed text
ranvier_require_library(zstd)
ranvier_require_library(xxhash)  # checksums of checkpoints

if(RANVIER_FUZZ)
  return()  # readers of files need no more
endif()

find_package(MPI REQUIRED COMPONENTS C)
# C interface only: mpi.h would otherwise include C++ bindings that need another library.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

find_package(OpenMP REQUIRED COMPONENTS CXX)
# Matrix multiplications on the CPU: 2.6 in Debian 12, 3.x in Ubuntu 24.04.
ranvier_require_library(dnnl)
# Asynchronous file I/O; programs check at run time whether the kernel or container allows it.
ranvier_require_library(uring)

if(RANVIER_TESTS)
  find_package(doctest REQUIRED)
  find_package(Boost ${ranvier_oldest_boost} QUIET OPTIONAL_COMPONENTS context)  # fibers, for the emulated GPU
endif()
