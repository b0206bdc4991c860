include(RanvierJoin)

# Requirements of code that includes Ranvier's headers, in this project and in others.
add_library(ranvier_headers INTERFACE)
set_target_properties(ranvier_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(ranvier_headers INTERFACE cxx_std_20)
target_compile_definitions(ranvier_headers INTERFACE RANVIER_WITH_CUDA=${RANVIER_WITH_CUDA}
                           RANVIER_WITH_NCCL=${RANVIER_WITH_NCCL})
target_link_libraries(ranvier_headers INTERFACE fmt::fmt Boost::headers)
target_compile_options(ranvier_headers INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
# fmt 9 assumes that nvcc lacks constexpr; its check of format strings then fails.
target_compile_definitions(ranvier_headers INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)

# Compiler options of this project.
add_library(ranvier_flags INTERFACE)
target_include_directories(ranvier_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(ranvier_flags INTERFACE ranvier_headers)
# Adds options for C++ sources and for nvcc's host compiler, so that their objects are compatible.
function(ranvier_host_options)
  foreach(option IN LISTS ARGN)
    target_compile_options(ranvier_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${option}>
                           $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${option}>)
  endforeach()
endfunction()
ranvier_host_options(-Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Delays GCC's garbage collection, which otherwise takes a tenth of the compile time.
  target_compile_options(ranvier_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1500000>)
endif()
if(NOT RANVIER_JOIN)
  ranvier_host_options(-Wshadow)  # in a unity build it would also report names of other sources
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  if(RANVIER_NATIVE)
    set(ranvier_processor -march=native)
  else()
    set(ranvier_processor -march=${RANVIER_ARCH})
  endif()
elseif(RANVIER_NATIVE)
  set(ranvier_processor -mcpu=native)
endif()
ranvier_host_options(${ranvier_processor})
# Checks undefined behaviour in the project's folders only (ranvier_room): in tests it would cost a third of the compile
# time. An error is a trap, which compiles faster than a message; the address sanitizer shows the line
# (tests/sanitizers/options.cpp).
set(ranvier_undefined OFF)
if(RANVIER_SANITIZE)
  string(REPLACE "," ";" sanitizers "${RANVIER_SANITIZE}")
  if("undefined" IN_LIST sanitizers)
    set(ranvier_undefined ON)
    list(REMOVE_ITEM sanitizers undefined)
  endif()
  # GCC warns that the thread sanitizer does not support fences. Boost.Asio's fences come with locks, which it supports.
  if("thread" IN_LIST sanitizers AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(ranvier_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  list(TRANSFORM sanitizers PREPEND -fsanitize=)
  target_compile_options(ranvier_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer)
  target_link_options(ranvier_flags INTERFACE -fsanitize=${RANVIER_SANITIZE})
  add_library(ranvier_sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/tests/sanitizers/options.cpp)
  target_link_libraries(ranvier_flags INTERFACE $<TARGET_OBJECTS:ranvier_sanitizer_options>)
endif()

if(RANVIER_JOIN)
  target_link_options(ranvier_flags INTERFACE -Wl,--gc-sections)
endif()

# ranvier_room(<room> SOURCES ... LINK ... PRIVATE ...): Ranvier::<room>, the library of a folder or of some of its
# programs. CUDA_SOURCES (x_cuda.cu with kernels, x_cuda.cpp with library calls) and CUDA_PRIVATE are added if the CUDA
# device is built. CUDA_PRIVATE is for compiling only: programs open those libraries at run time.
function(ranvier_room room)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE;CUDA_SOURCES;CUDA_PRIVATE" ${ARGN})
  if(RANVIER_WITH_CUDA)
    list(APPEND arg_SOURCES ${arg_CUDA_SOURCES})
    list(TRANSFORM arg_CUDA_PRIVATE REPLACE "(.+)" "$<BUILD_INTERFACE:\\1>")
    list(APPEND arg_PRIVATE ${arg_CUDA_PRIVATE})
    if(arg_CUDA_SOURCES)
      list(APPEND arg_PRIVATE ranvier_cuda)
    endif()
  endif()
  add_library(ranvier_${room} STATIC ${arg_SOURCES})
  add_library(Ranvier::${room} ALIAS ranvier_${room})
  set_target_properties(ranvier_${room} PROPERTIES EXPORT_NAME ${room})
  target_link_libraries(ranvier_${room} PUBLIC $<BUILD_INTERFACE:ranvier_flags> ranvier_headers ${arg_LINK}
                                        PRIVATE ${arg_PRIVATE})
  if(ranvier_undefined)
    target_compile_options(ranvier_${room} PRIVATE -fsanitize=undefined -fsanitize-undefined-trap-on-error)
  endif()
  # Sources that compute tensors (*_cpu.cpp) use -O3. Other sources gain nothing from it and compile a sixth faster with
  # -O2.
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
    set(release "$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>")
    target_compile_options(ranvier_${room} PRIVATE "$<${release}:-O2>")
    list(FILTER arg_SOURCES INCLUDE REGEX "_cpu\\.cpp$")
    set_property(SOURCE ${arg_SOURCES} APPEND PROPERTY COMPILE_OPTIONS "$<${release}:-O3>")
  endif()
  ranvier_join(ranvier_${room})
endfunction()

# Prefix for the names of tests in sanitizer builds, so that one ctest can run several builds.
set(ranvier_test_prefix "")
if(RANVIER_SANITIZE MATCHES "thread")
  set(ranvier_test_prefix "tsan ")
elseif(RANVIER_SANITIZE)
  set(ranvier_test_prefix "asan ")
endif()

# Whether kernels are also tested on an emulated GPU (tests/emulation).
set(RANVIER_EMULATION OFF)
if(RANVIER_WITH_CUDA AND RANVIER_TESTS AND NOT RANVIER_SANITIZE AND TARGET Boost::context)
  set(RANVIER_EMULATION ON)
endif()

# ranvier_add_tests(<target> <prefix> SOURCES ... PROPERTIES ...): adds a ctest test "<prefix>: x" for each source
# x_test.cpp of a doctest program. It runs the source's cases in one process; a process per case would take twice as
# long.
function(ranvier_add_tests target prefix)
  cmake_parse_arguments(arg "" "" "SOURCES;PROPERTIES" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(source IN LISTS arg_SOURCES)
    set(cases "")
    if(source MATCHES "^(.+)_test[.]cpp$")
      file(STRINGS ${source} cases REGEX "^TEST_CASE" LIMIT_COUNT 1)
    endif()
    if(cases)
      string(REGEX REPLACE "_test[.]cpp$" "" name ${source})
      set(name "${ranvier_test_prefix}${prefix}: ${name}")
      add_test(NAME "${name}" COMMAND ${target} --no-intro "--source-file=*${folder}/${source}"
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties("${name}" PROPERTIES ${arg_PROPERTIES})
    endif()
  endforeach()
endfunction()

# ranvier_tests(<room> SOURCES ... DEVICE_SOURCES ... CUDA_SOURCES ... GPU_SOURCES ... LINK ...): a doctest program; each
# of its sources is a ctest test. DEVICE_SOURCES compute on tests/device_under_test.hpp. If the CUDA device is built, they
# are also compiled into
#
#   a program with CUDA_SOURCES and GPU_SOURCES, one ctest test with the label `gpu`, skipped without a GPU
#   a program with CUDA_SOURCES on an emulated GPU (tests/emulation), if the folder has kernels
#
# With ONE_THREAD no test case may start a thread (checked by tests/one_thread.cpp), and ThreadSanitizer builds skip the
# program.
include(doctest OPTIONAL)
function(ranvier_tests room)
  cmake_parse_arguments(arg "ONE_THREAD" "" "SOURCES;DEVICE_SOURCES;CUDA_SOURCES;GPU_SOURCES;LINK" ${ARGN})
  if(arg_ONE_THREAD AND RANVIER_SANITIZE MATCHES "thread")
    return()
  endif()
  set(both ${arg_DEVICE_SOURCES})
  if(RANVIER_WITH_CUDA AND arg_DEVICE_SOURCES)
    add_library(ranvier_${room}_device_tests OBJECT ${both})
    target_link_libraries(ranvier_${room}_device_tests PRIVATE ${arg_LINK} doctest::doctest)
    ranvier_join(ranvier_${room}_device_tests)
    set(both $<TARGET_OBJECTS:ranvier_${room}_device_tests>)
    add_executable(ranvier_${room}_gpu_tests ${both} ${PROJECT_SOURCE_DIR}/tests/gpu/device_under_test.cpp
                   ${arg_CUDA_SOURCES} ${arg_GPU_SOURCES})
    target_link_libraries(ranvier_${room}_gpu_tests PRIVATE ${arg_LINK} ranvier_test_main)
    ranvier_gpu_test(${room} ranvier_${room}_gpu_tests)
    if(TARGET ranvier_emulated_${room})
      add_executable(ranvier_${room}_emulated_tests ${both} ${PROJECT_SOURCE_DIR}/tests/gpu/device_under_test.cpp
                     ${arg_CUDA_SOURCES})
      target_link_libraries(ranvier_${room}_emulated_tests PRIVATE ranvier_emulated_${room} ${arg_LINK} ranvier_test_main)
      ranvier_add_tests(ranvier_${room}_emulated_tests "${room} on an emulated GPU"
                        SOURCES ${arg_DEVICE_SOURCES} ${arg_CUDA_SOURCES} PROPERTIES LABELS unit)
    endif()
  endif()
  if(arg_ONE_THREAD)
    list(APPEND both ${PROJECT_SOURCE_DIR}/tests/one_thread.cpp)
  endif()
  add_executable(ranvier_${room}_tests ${both} ${arg_SOURCES})
  target_link_libraries(ranvier_${room}_tests PRIVATE ${arg_LINK} ranvier_test_main)
  ranvier_join(ranvier_${room}_tests)
  string(REPLACE "_" " " prefix ${room})
  ranvier_add_tests(ranvier_${room}_tests "${prefix}" SOURCES ${arg_DEVICE_SOURCES} ${arg_SOURCES}
                    PROPERTIES LABELS unit
                    ENVIRONMENT ASAN_OPTIONS=fast_unwind_on_malloc=1)  # frame pointers are sufficient without MPI
endfunction()

# ranvier_gpu_test(<name> <target>): one ctest test that needs a GPU; exit code 77 means that there is none.
if(RANVIER_WITH_CUDA)
  add_custom_target(gpu_tests)  # all of them
endif()
function(ranvier_gpu_test name target)
  add_dependencies(gpu_tests ${target})
  add_test(NAME "gpu: ${name}" COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties("gpu: ${name}" PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu TIMEOUT 600)
endfunction()

# ranvier_mpi_tests(<room> RANKS <n>... SOURCES ... LINK ...): a doctest program that mpirun starts once per number of
# ranks. ranvier_mpirun(<name> <n> COMMAND ...) adds such a test for any command.
function(ranvier_mpi_tests room)
  cmake_parse_arguments(arg "" "" "RANKS;SOURCES;LINK" ${ARGN})
  add_executable(ranvier_${room}_mpi_tests ${PROJECT_SOURCE_DIR}/tests/mpi_main.cpp ${arg_SOURCES})
  target_link_libraries(ranvier_${room}_mpi_tests PRIVATE ${arg_LINK} ranvier_doctest)
  ranvier_join(ranvier_${room}_mpi_tests)
  foreach(ranks IN LISTS arg_RANKS)
    ranvier_mpirun("${room}: mpirun -n ${ranks}" ${ranks} COMMAND ranvier_${room}_mpi_tests)
  endforeach()
endfunction()

function(ranvier_mpirun name ranks)
  cmake_parse_arguments(arg "" "" "COMMAND" ${ARGN})
  set(test "${ranvier_test_prefix}${name}")
  list(POP_FRONT arg_COMMAND program)
  add_test(NAME "${test}" COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n ${ranks}
           $<TARGET_FILE:${program}> ${arg_COMMAND})
  set(timeout 120)
  if(RANVIER_SANITIZE)
    set(timeout 400)  # four ranks that share two cores
  endif()
  set_tests_properties("${test}" PROPERTIES LABELS mpi TIMEOUT ${timeout} PROCESSORS 2
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
