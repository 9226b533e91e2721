# Tests of the CUDA double and of the CUDA driver on it. Label cuda; the target cuda_tests builds them.
if(NOT HEDDLE_CUDA)
  return()
endif()
set(conformance "${PROJECT_SOURCE_DIR}/tests/driver_conformance")
file(GLOB double CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cuda_double/*.cpp")
add_library(heddle_cuda_double STATIC EXCLUDE_FROM_ALL ${double})
target_link_libraries(heddle_cuda_double PUBLIC heddle_cuda)
target_include_directories(heddle_cuda_double PUBLIC "${PROJECT_SOURCE_DIR}")

# The suite of all drivers, on this one alone.
file(GLOB suite CONFIGURE_DEPENDS "${conformance}/*.cpp")
list(FILTER suite EXCLUDE REGEX "_cases\\.cpp$")
set(HEDDLE_TEST_ENVIRONMENT HEDDLE_TEST_DRIVER=cuda)
heddle_test(cuda_conformance LABEL cuda SOURCES ${suite}
  LINK heddle_conformance_cases heddle_cuda_double heddle_host heddle_sim heddle_runtime)
unset(HEDDLE_TEST_ENVIRONMENT)
target_compile_definitions(cuda_conformance PRIVATE HEDDLE_CUDA=1)

file(GLOB driver_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cuda_driver/*_test.cpp")
heddle_test(cuda_driver_test LABEL cuda LINK heddle_conformance_cases heddle_cuda_double
  SOURCES ${driver_tests} "${conformance}/session.cpp" "${conformance}/op_check.cpp")
add_custom_target(cuda_tests DEPENDS cuda_conformance cuda_driver_test)
