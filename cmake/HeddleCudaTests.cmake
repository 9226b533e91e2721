# Tests of the CUDA double and of the CUDA driver on it. Label cuda; the target cuda_tests builds them.
if(NOT HEDDLE_CUDA STREQUAL "DOUBLE")
  return()
endif()
set(conformance "${PROJECT_SOURCE_DIR}/tests/driver_conformance")
file(GLOB double CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cuda_double/*.cpp")
list(FILTER double EXCLUDE REGEX "/kernel_share\\.cpp$")
add_library(heddle_cuda_double STATIC EXCLUDE_FROM_ALL ${double})
target_link_libraries(heddle_cuda_double PUBLIC heddle_cuda heddle_sim)
target_include_directories(heddle_cuda_double PUBLIC "${PROJECT_SOURCE_DIR}")
# The kernels, in shares for several processors. With GCC -O3 takes two fifths longer to compile and the tests
# no less; with the thread sanitizer -O2 spares the tests more than -O1 spares the compiler.
set(shares 4)
set(double_parts heddle_cuda_double)
math(EXPR last "${shares} - 1")
foreach(share RANGE ${last})
  set(part heddle_cuda_kernels_${share})
  add_library(${part} OBJECT EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/cuda_double/kernel_share.cpp")
  target_link_libraries(${part} PRIVATE heddle_cuda)
  target_include_directories(${part} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${part} PRIVATE HEDDLE_KERNEL_SHARE=${share})
  target_sources(heddle_cuda_double PRIVATE $<TARGET_OBJECTS:${part}>)
  target_compile_options(${part} PRIVATE -O2)
  list(APPEND double_parts ${part})
endforeach()
# Kernels call fmaf, which is an instruction where the processor has it and else a call. What they do not ask
# for is not fused, as nvcc is told.
set(double_options -ffp-contract=off)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo has_fma REGEX "^flags.* fma .*avx2" LIMIT_COUNT 1)
  if(has_fma)
    list(APPEND double_options -mfma -mavx2)
  endif()
endif()
foreach(part IN LISTS double_parts)
  target_compile_options(${part} PRIVATE ${double_options})
  target_compile_definitions(${part} PRIVATE HEDDLE_KERNEL_SHARES=${shares})
endforeach()
# How its NVRTC compiles chains while tests run, and where it keeps them.
set(cuda_folder "${PROJECT_BINARY_DIR}/cuda_double")
set(compile_chain "${CMAKE_CXX_COMPILER}" -std=c++20 -O0 -shared -fPIC -fvisibility=hidden -DHEDDLE_LOADED
    ${double_options})
if(HEDDLE_SANITIZE)
  list(APPEND compile_chain -g1 -fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer
       -fno-sanitize-recover=all)
endif()
list(JOIN compile_chain " " compile_chain)
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/cuda_double/nvrtc_double.cpp" PROPERTIES
  COMPILE_DEFINITIONS
  "HEDDLE_DOUBLE_COMPILE=\"${compile_chain}\";HEDDLE_DOUBLE_CHAINS=\"${cuda_folder}/chains\""
  SKIP_UNITY_BUILD_INCLUSION ON)

# In the place of NVIDIA's, for programs that find libcuda.so.1 there: LD_LIBRARY_PATH names the folder.
add_library(cuda_in_its_place SHARED EXCLUDE_FROM_ALL
  "${PROJECT_SOURCE_DIR}/tests/cuda_double/library/libcuda.cpp")
target_link_libraries(cuda_in_its_place PRIVATE heddle_cuda_double)
set_target_properties(cuda_in_its_place PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY "${cuda_folder}")
# cuBLASLt and NVRTC likewise, in a folder of their own: HEDDLE_CUDA_LIBRARIES names it.
foreach(library cublas_lt nvrtc)
  set(target ${library}_in_its_place)
  add_library(${target} SHARED EXCLUDE_FROM_ALL
    "${PROJECT_SOURCE_DIR}/tests/cuda_double/library/lib${library}.cpp")
  target_link_libraries(${target} PRIVATE cuda_in_its_place)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src")
  string(REPLACE cublas_lt cublasLt name ${library})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} SOVERSION 13 LIBRARY_OUTPUT_DIRECTORY "${cuda_folder}/libraries")
endforeach()
file(CONFIGURE OUTPUT "${cuda_folder}/kernels" CONTENT "the kernels of the double\n")

# heddle_on_cuda(name target arguments...): a suite of all devices, on this one.
set(narrower 4)
if(HEDDLE_SANITIZE)
  set(narrower 8)
endif()
set(cuda_device cuda)
function(heddle_on_cuda name target)
  heddle_ctest(${name} TARGET ${target} LABELS cuda ARGUMENTS ${ARGN}
    ENVIRONMENT HEDDLE_DEVICE=${cuda_device} "LD_LIBRARY_PATH=${cuda_folder}"
                "HEDDLE_CUDA_IMAGE=${cuda_folder}/kernels" HEDDLE_CUDA_DOUBLE_DEVICES=2
                HEDDLE_TEST_NARROWER=${narrower} ${HEDDLE_SANITIZER_OPTIONS})
endfunction()
# Left out: contention is counted for synchronous devices, and results are in staging memory, which the limit
# that two tests set does not hold.
if(TARGET stress_test)
  heddle_on_cuda(stress_on_cuda stress_test
    "-tce=warm calls on thirty-one streams*,four threads under memory pressure*,a memory-pressure callback*")
endif()

if(TARGET stress_test AND NOT HEDDLE_SANITIZE)
  # Beside a library whose bits depend on the number of rows.
  heddle_on_cuda(exact_beside_libraries stress_test "-tc=exact:*")
  set_property(TEST exact_beside_libraries APPEND PROPERTY
    ENVIRONMENT "HEDDLE_CUDA_LIBRARIES=${cuda_folder}/libraries")
  set(cuda_device cuda:1)
  heddle_on_cuda(stress_on_second_gpu stress_test "-tc=strided and batched*,softmax*")
  set(cuda_device cuda)
endif()

# The suite of all drivers, on this one alone.
file(GLOB suite CONFIGURE_DEPENDS "${conformance}/*.cpp")
list(FILTER suite EXCLUDE REGEX "(_cases|/numbers)\\.cpp$")
set(HEDDLE_TEST_ENVIRONMENT HEDDLE_TEST_DRIVER=cuda)
# In parts, which run beside each other.
set(operators "every operator gives the reference's values*")
heddle_test(cuda_conformance LABEL cuda SOURCES ${suite} ARGUMENTS "-tce=${operators}"
  LINK heddle_conformance_cases heddle_cuda_double heddle_host heddle_sim heddle_runtime)
foreach(half even odd)
  heddle_ctest(cuda_operators_${half} TARGET cuda_conformance LABELS cuda
    ENVIRONMENT HEDDLE_TEST_DRIVER=cuda ${HEDDLE_SANITIZER_OPTIONS}
    ARGUMENTS "-tc=${operators}" "-sc=${half} cases")
endforeach()
set_tests_properties(cuda_operators_even cuda_operators_odd PROPERTIES COST 30)
unset(HEDDLE_TEST_ENVIRONMENT)
target_compile_definitions(cuda_conformance PRIVATE HEDDLE_CUDA=1)

file(GLOB driver_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cuda_driver/*_test.cpp")
if(TARGET heddle_api)
  set(api heddle_api)
else()
  list(FILTER driver_tests EXCLUDE REGEX "/(coalesced_calls|pinned_tensors)_test\\.cpp$")
endif()
heddle_test(cuda_driver_test LABEL cuda LINK heddle_conformance_cases heddle_cuda_double heddle_runtime ${api}
  SOURCES ${driver_tests} "${conformance}/session.cpp" "${conformance}/op_check.cpp")
set_tests_properties(cuda_driver_test PROPERTIES COST 80)  # first
if(NOT HEDDLE_SANITIZE)  # it has an operator new of its own
  heddle_test(cuda_no_memory_test LABEL cuda LINK heddle_cuda_double heddle_runtime
    SOURCES "${PROJECT_SOURCE_DIR}/tests/cuda_driver/no_memory.cpp" "${conformance}/session.cpp"
      "${conformance}/numbers.cpp" "${PROJECT_SOURCE_DIR}/tests/host_runtime/out_of_memory_new.cpp")
endif()
if(TARGET stress_test)
  set_tests_properties(stress_on_cuda PROPERTIES COST 60)
endif()
add_custom_target(cuda_tests DEPENDS cuda_conformance cuda_driver_test cuda_in_its_place
  cublas_lt_in_its_place nvrtc_in_its_place)
foreach(program stress_test cuda_callers cuda_no_memory_test)
  if(TARGET ${program})
    add_dependencies(cuda_tests ${program})
  endif()
endforeach()

# Under a sanitizer the stages cuda_tsan and cuda_asan run what threads do and what is quick; tsan_whole and
# asan_whole run all.
if(HEDDLE_SANITIZE)
  set(whole cuda_driver_test cuda_conformance cuda_operators_even cuda_operators_odd)
  if(TARGET stress_test)
    list(APPEND whole stress_on_cuda)
    heddle_on_cuda(stress_threads_on_cuda stress_test
      "-tc=eight threads run fifty*,sixty-four threads share*,the very first call*,all models at once*")
  endif()
  set_tests_properties(${whole} PROPERTIES LABELS long)
  string(CONCAT of_one_thread "every kernel gives*,an operator of several launches*,a row of a product*,"
         "an image's bits*,cuDNN computes the*,a row has the bits that it has alone*,"
         "models whose values lie*")
  if(HEDDLE_SANITIZE STREQUAL "thread")
    string(APPEND of_one_thread ",a compiled chain has the bits of the interpreter*,a query's bits do not*,"
           "a product of few rows has*,a copy that one block would make too slowly*")
  endif()
  set(of_libraries "-sf=*blas_lt_test.cpp,*cudnn_test.cpp,*library*_test.cpp,*algorithm_store_test.cpp")
  string(REPLACE "-sf=" "-sfe=" of_others "${of_libraries}")
  foreach(half libraries others)
    heddle_ctest(cuda_driver_${half} TARGET cuda_driver_test LABELS cuda
      ENVIRONMENT ${HEDDLE_SANITIZER_OPTIONS} ARGUMENTS "-tce=${of_one_thread}" "${of_${half}}")
  endforeach()
  set_tests_properties(cuda_driver_others PROPERTIES COST 80)
  string(CONCAT of_queues "a queue does*,a timeline reaches*,copies between*,a wait for another*,"
         "what waits for a point*,a signalled event*,what only the data*,a program runs after*")
  heddle_ctest(cuda_queues TARGET cuda_conformance LABELS cuda
    ENVIRONMENT HEDDLE_TEST_DRIVER=cuda ${HEDDLE_SANITIZER_OPTIONS} ARGUMENTS "-tc=${of_queues}")
endif()
