# ranvier_build_facts(<target>): adds a source file that defines apps/program/build_info.hpp. Every build updates it if
# its content has changed.
include_guard()

# Version from a header's macros: MAJOR.MINOR.PATCH from three names, or fewer.
function(ranvier_header_version result header)
  set(version "")
  if(EXISTS ${header})
    foreach(macro IN LISTS ARGN)
      file(STRINGS ${header} line REGEX "^[ \t]*#[ \t]*define[ \t]+${macro}[ \t]+[0-9]+")
      if(line MATCHES "${macro}[ \t]+([0-9]+)")
        list(APPEND version ${CMAKE_MATCH_1})
      endif()
    endforeach()
    list(JOIN version "." version)
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

function(ranvier_build_facts target)
  set(libraries "Boost ${Boost_VERSION}" "fmt ${fmt_VERSION}")
  ranvier_header_version(version ${RANVIER_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h
                         DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)
  list(APPEND libraries "oneDNN ${version}")
  find_package(PkgConfig QUIET)  # older headers of liburing do not define their version
  if(PkgConfig_FOUND)
    pkg_check_modules(ranvier_liburing QUIET liburing)
  endif()
  list(APPEND libraries "liburing ${ranvier_liburing_VERSION}")
  ranvier_header_version(version ${RANVIER_PCRE2_INCLUDE}/pcre2.h PCRE2_MAJOR PCRE2_MINOR)
  list(APPEND libraries "PCRE2 ${version}")
  ranvier_header_version(version ${RANVIER_UTF8PROC_INCLUDE}/utf8proc.h
                         UTF8PROC_VERSION_MAJOR UTF8PROC_VERSION_MINOR UTF8PROC_VERSION_PATCH)
  list(APPEND libraries "utf8proc ${version}")
  ranvier_header_version(version ${RANVIER_ZSTD_INCLUDE}/zstd.h
                         ZSTD_VERSION_MAJOR ZSTD_VERSION_MINOR ZSTD_VERSION_RELEASE)
  list(APPEND libraries "zstd ${version}")
  ranvier_header_version(version ${RANVIER_XXHASH_INCLUDE}/xxhash.h
                         XXH_VERSION_MAJOR XXH_VERSION_MINOR XXH_VERSION_RELEASE)
  list(APPEND libraries "xxHash ${version}")
  ranvier_header_version(version ${ZLIB_INCLUDE_DIRS}/zlib.h ZLIB_VER_MAJOR ZLIB_VER_MINOR ZLIB_VER_REVISION)
  list(APPEND libraries "zlib ${version}")
  set(devices "cpu")
  if(RANVIER_WITH_CUDA)
    list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
    string(APPEND devices ", cuda (toolkit ${CMAKE_CUDA_COMPILER_VERSION}, for ${architectures})")
    if(RANVIER_WITH_NCCL)
      ranvier_header_version(version ${RANVIER_NCCL_INCLUDE}/nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH)
      list(APPEND libraries "NCCL ${version}")
    endif()
    if(RANVIER_WITH_CUDNN)
      ranvier_header_version(version ${RANVIER_CUDNN_INCLUDE}/cudnn_version.h
                             CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
      list(APPEND libraries "cuDNN ${version}")
    endif()
  endif()
  list(TRANSFORM libraries STRIP)
  list(JOIN libraries ", " libraries)

  find_package(Git QUIET)
  set(facts ${CMAKE_CURRENT_BINARY_DIR}/build_info.cpp)
  add_custom_target(${target}_facts
    COMMAND ${CMAKE_COMMAND} -D "GIT=${GIT_EXECUTABLE}" -D "SOURCE=${PROJECT_SOURCE_DIR}" -D "OUTPUT=${facts}"
            -D "VERSION=${PROJECT_VERSION}" -D "DEVICES=${devices}" -D "LIBRARIES=${libraries}"
            -P ${PROJECT_SOURCE_DIR}/cmake/write_build_facts.cmake
    BYPRODUCTS ${facts}
    COMMENT "Asking for the commit" VERBATIM)
  add_dependencies(${target} ${target}_facts)
  target_sources(${target} PRIVATE ${facts})
endfunction()
