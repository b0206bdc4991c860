# Libraries without a CMake package on some systems, as imported targets ranvier_<name>. Used by the build and by
# find_package(Ranvier).
#
# ranvier_find_library(<name>): pcre2, utf8proc, zstd, dnnl, uring or xxhash. Sets RANVIER_<NAME>_INCLUDE and
# RANVIER_<NAME>_LIBRARY, or adds the library and a remedy to ranvier_missing.
# ranvier_import_cuda(): defines ranvier_cuda, the headers and static CUDA runtime of the CUDAToolkit that was found.
function(ranvier_find_library name)
  #           name        header                library  package
  set(pcre2   PCRE2       pcre2.h               pcre2-8  libpcre2-dev)
  set(utf8proc utf8proc   utf8proc.h            utf8proc libutf8proc-dev)
  set(zstd    zstd        zstd.h                zstd     libzstd-dev)
  set(dnnl    oneDNN      oneapi/dnnl/dnnl.hpp  dnnl     libdnnl-dev)  # Debian's CMake package needs OpenCL's headers
  set(uring   liburing    liburing.h            uring    liburing-dev)
  set(xxhash  xxHash      xxhash.h              ""       libxxhash-dev)  # header only
  list(GET ${name} 0 title)
  list(GET ${name} 1 header)
  list(GET ${name} 2 library)
  list(GET ${name} 3 package)
  string(TOUPPER RANVIER_${name} prefix)
  set(ranvier_missing "" PARENT_SCOPE)
  find_path(${prefix}_INCLUDE ${header})
  if(library)
    find_library(${prefix}_LIBRARY ${library})
  endif()
  if(NOT ${prefix}_INCLUDE OR (library AND NOT ${prefix}_LIBRARY))
    set(ranvier_missing "${title} was not found: install ${package}, or point CMAKE_PREFIX_PATH at it" PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET ranvier_${name})
    add_library(ranvier_${name} INTERFACE IMPORTED)
    target_include_directories(ranvier_${name} INTERFACE ${${prefix}_INCLUDE})
    if(library)
      target_link_libraries(ranvier_${name} INTERFACE ${${prefix}_LIBRARY})
    endif()
    if(name STREQUAL "dnnl")  # limits OpenMP to the calling thread: the compute pool has the threads
      target_link_libraries(ranvier_dnnl INTERFACE OpenMP::OpenMP_CXX)
    endif()
  endif()
endfunction()

function(ranvier_import_cuda)
  if(NOT TARGET ranvier_cuda)
    add_library(ranvier_cuda INTERFACE IMPORTED)
    target_link_libraries(ranvier_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
  endif()
endfunction()
