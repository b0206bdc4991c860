# CUDA device: -DRANVIER_CUDA=ON|OFF|AUTO. AUTO builds it if a CUDA compiler of 12.4 or newer and cuBLAS are found. Sets
# RANVIER_WITH_CUDA, RANVIER_WITH_NCCL and RANVIER_WITH_CUDNN to 0 or 1, and defines these targets:
#
#   ranvier_cuda   headers and the static CUDA runtime, so that programs also start without the driver
#   ranvier_blas   cuBLASLt's header; path of the library in RANVIER_CUBLAS_LT
#   ranvier_nccl   NCCL's header; path of the library in RANVIER_NCCL; only if both are found
#   ranvier_cudnn  headers of cuDNN 9 and cudnn-frontend; path of the library in RANVIER_CUDNN; only if all are found
#   ranvier_nvtx   NVTX's headers, if found
#
# Programs open cuBLASLt, NCCL and cuDNN at run time. CMake searches libraries in the toolkit, the system, and the
# nvidia-* packages of the Python environment of -DRANVIER_PYTHON=... (default python3). Headers of cudnn-frontend are
# searched in build/cudnn-frontend (cmake/install_dependencies.sh --cuda) and -DRANVIER_CUDNN_FRONTEND_INCLUDE=....
set(RANVIER_CUDA AUTO CACHE STRING "The CUDA device: ON, OFF, or AUTO for where it can be built")
set_property(CACHE RANVIER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(RANVIER_PYTHON python3 CACHE STRING "Python whose nvidia-* packages may bring cuBLAS, cuDNN and NCCL")

set(RANVIER_WITH_CUDA 0)
set(RANVIER_WITH_NCCL 0)
set(RANVIER_WITH_CUDNN 0)
set(ranvier_oldest_cuda 12.4)

# Reports why the device cannot be built: as an error if RANVIER_CUDA is ON, as a status line if it is AUTO.
macro(ranvier_no_cuda reason)
  if(RANVIER_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA device: no, ${reason}")
  else()
    message(FATAL_ERROR "RANVIER_CUDA=ON, but ${reason}; -DRANVIER_CUDA=OFF builds without it")
  endif()
endmacro()

function(ranvier_find_cuda_compiler)
  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    return()
  endif()
  find_program(RANVIER_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(RANVIER_NVCC)
    set(CMAKE_CUDA_COMPILER ${RANVIER_NVCC} CACHE FILEPATH "CUDA compiler")
  endif()
endfunction()

# ranvier_vendor_library(<target> HEADER <file> LIBRARIES <name>...): an interface target for shared libraries that lie
# where the toolkit, the system or a Python package puts them; a package has no name without a version. Absent if any
# part is missing.
function(ranvier_vendor_library target)
  cmake_parse_arguments(arg "" "HEADER" "LIBRARIES" ${ARGN})
  string(TOUPPER ${target} prefix)
  find_path(${prefix}_INCLUDE ${arg_HEADER} HINTS ${CUDAToolkit_INCLUDE_DIRS} ${ranvier_python_cuda} PATH_SUFFIXES include)
  if(NOT ${prefix}_INCLUDE)
    return()
  endif()
  set(found "")
  foreach(name IN LISTS arg_LIBRARIES)
    string(TOUPPER ${name} upper)
    find_library(${prefix}_${upper} ${name} HINTS ${CUDAToolkit_LIBRARY_DIR} ${ranvier_python_cuda} PATH_SUFFIXES lib lib64)
    if(NOT ${prefix}_${upper})
      set(versions "")
      foreach(root IN LISTS CUDAToolkit_LIBRARY_DIR ranvier_python_cuda)
        file(GLOB here ${root}/lib${name}.so.* ${root}/lib/lib${name}.so.*)
        list(APPEND versions ${here})
      endforeach()
      if(NOT versions)
        return()
      endif()
      list(GET versions 0 first)
      set(${prefix}_${upper} ${first} CACHE FILEPATH "" FORCE)
    endif()
    add_library(${target}_${name} SHARED IMPORTED GLOBAL)
    set_target_properties(${target}_${name} PROPERTIES IMPORTED_LOCATION ${${prefix}_${upper}})
    list(APPEND found ${target}_${name})
  endforeach()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${prefix}_INCLUDE})
  target_link_libraries(${target} INTERFACE ${found} ranvier_cuda)
endfunction()

# ranvier_open_at_run_time(<target> <name> <definition>): programs do not link library <name> of a vendor target; the
# macro <definition> has its path.
function(ranvier_open_at_run_time target name definition)
  get_target_property(location ${target}_${name} IMPORTED_LOCATION)
  set_target_properties(${target} PROPERTIES
    INTERFACE_LINK_LIBRARIES ranvier_cuda
    INTERFACE_COMPILE_DEFINITIONS "${definition}=\"${location}\"")
endfunction()

# Each folder of a Python environment's `nvidia` package that has libraries.
function(ranvier_find_python_cuda)
  execute_process(COMMAND ${RANVIER_PYTHON} -c "import nvidia; print(';'.join(nvidia.__path__))"
                  OUTPUT_VARIABLE roots OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  set(folders "")
  if(NOT failed)
    foreach(root IN LISTS roots)
      file(GLOB here ${root}/*/lib)
      list(TRANSFORM here REPLACE "/lib$" "")
      list(APPEND folders ${here})
    endforeach()
  endif()
  set(ranvier_python_cuda "${folders}" PARENT_SCOPE)
endfunction()

# Defines ranvier_cudnn if all of it is found. Sets RANVIER_WITH_CUDNN, and the status line ranvier_cudnn_line.
function(ranvier_find_cudnn)
  ranvier_vendor_library(ranvier_cudnn HEADER cudnn.h LIBRARIES cudnn)
  execute_process(COMMAND ${RANVIER_PYTHON} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                  OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(RANVIER_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h DOC "Folder of cudnn-frontend's cudnn_frontend.h"
            HINTS ${packages} ${PROJECT_SOURCE_DIR}/build/cudnn-frontend PATH_SUFFIXES include)
  set(line "no, cuDNN 9 was not found: install it or the Python package nvidia-cudnn")
  if(TARGET ranvier_cudnn)
    set(major "")
    if(EXISTS ${RANVIER_CUDNN_INCLUDE}/cudnn_version.h)
      file(STRINGS ${RANVIER_CUDNN_INCLUDE}/cudnn_version.h major REGEX "define CUDNN_MAJOR 9")
    endif()
    if(major AND RANVIER_CUDNN_FRONTEND_INCLUDE)
      target_include_directories(ranvier_cudnn SYSTEM INTERFACE ${RANVIER_CUDNN_FRONTEND_INCLUDE})
      ranvier_open_at_run_time(ranvier_cudnn cudnn RANVIER_CUDNN)
      set(RANVIER_WITH_CUDNN 1 PARENT_SCOPE)
      set(line "yes")
    elseif(major)
      set(line "no, cudnn-frontend was not found: cmake/install_dependencies.sh --cuda, or install the Python package nvidia-cudnn-frontend")
    endif()
  endif()
  set(ranvier_cudnn_line "${line}" PARENT_SCOPE)
endfunction()

# Sanitizers check host code only, and a second compiler would double the build time.
if(RANVIER_SANITIZE AND RANVIER_CUDA STREQUAL "AUTO")
  set(ranvier_try_cuda OFF)
else()
  set(ranvier_try_cuda ${RANVIER_CUDA})  # AUTO counts as true
endif()

if(NOT ranvier_try_cuda STREQUAL "OFF" AND (ranvier_try_cuda STREQUAL "AUTO" OR ranvier_try_cuda))
  ranvier_find_cuda_compiler()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for both, and PTX of the newer for later GPUs.
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "CUDA architectures")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    ranvier_no_cuda("no working CUDA compiler was found: put nvcc ${ranvier_oldest_cuda} or newer on the PATH, or set CUDACXX")
  else()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 knows nvcc up to C++17
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(RANVIER_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${RANVIER_CCACHE})
    endif()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS ranvier_oldest_cuda)
      ranvier_no_cuda("the CUDA compiler is ${CMAKE_CUDA_COMPILER_VERSION}: install ${ranvier_oldest_cuda} or newer")
    else()
      find_package(CUDAToolkit REQUIRED)
      ranvier_find_python_cuda()
      ranvier_import_cuda()
      ranvier_vendor_library(ranvier_blas HEADER cublasLt.h LIBRARIES cublas cublasLt)
      ranvier_vendor_library(ranvier_nccl HEADER nccl.h LIBRARIES nccl)
      if(NOT TARGET ranvier_blas)
        ranvier_no_cuda("cuBLAS was not found: install libcublas-dev or the Python package nvidia-cublas, or point CMAKE_PREFIX_PATH at it")
      else()
        set(RANVIER_WITH_CUDA 1)
        # Opened at first use: loading cuBLASLt takes 175 MiB, which jobs on other devices do not need.
        ranvier_open_at_run_time(ranvier_blas cublasLt RANVIER_CUBLAS_LT)
        if(TARGET ranvier_nccl)
          set(RANVIER_WITH_NCCL 1)
          ranvier_open_at_run_time(ranvier_nccl nccl RANVIER_NCCL)
        endif()
        ranvier_find_cudnn()
        find_path(RANVIER_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${ranvier_python_cuda}
                  PATH_SUFFIXES include)
        if(RANVIER_NVTX_INCLUDE)
          add_library(ranvier_nvtx INTERFACE)
          target_include_directories(ranvier_nvtx SYSTEM INTERFACE ${RANVIER_NVTX_INCLUDE})
          target_link_libraries(ranvier_nvtx INTERFACE ${CMAKE_DL_LIBS})
        endif()
        message(STATUS "CUDA device: yes, ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, NCCL ${RANVIER_WITH_NCCL}")
        message(STATUS "cuDNN's attention: ${ranvier_cudnn_line}")
      endif()
    endif()
  endif()
endif()
