# Tests and benchmarks that belong to no single file of src/.
get_property(HEDDLE_ALL GLOBAL PROPERTY HEDDLE_LIBRARIES)

function(heddle_test_folders)
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/tests/*")
  foreach(folder IN LISTS folders)
    get_filename_component(name "${folder}" NAME)
    # The consumer is a project of its own: it is built against an install tree (tools/check_install.py).
    # The doubles and their drivers' tests have files of their own, HeddleMetalTests and HeddleCudaTests, and
    # so has fuzz, HeddleFuzz.
    if(NOT IS_DIRECTORY "${folder}" OR name MATCHES "^(consumer|fuzz|(metal|cuda)_(double|driver))$")
      continue()
    endif()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
    if(NOT sources)
      continue()
    endif()
    if(HEDDLE_SANITIZE)  # they have an operator new of their own, as that test has
      list(FILTER sources EXCLUDE REGEX "/host_runtime/out_of_memory")
    endif()
    if(name STREQUAL "driver_conformance")
      # What metal_graph_test takes, too, is compiled once.
      set(cases ${sources})
      list(FILTER cases INCLUDE REGEX "(_cases|/numbers)\\.cpp$")
      list(REMOVE_ITEM sources ${cases})
      set(conformance_checks "${folder}/session.cpp" "${folder}/op_check.cpp")
      add_library(heddle_conformance_cases OBJECT ${cases})
      target_link_libraries(heddle_conformance_cases PUBLIC heddle_ir)
      target_include_directories(heddle_conformance_cases PRIVATE "${PROJECT_SOURCE_DIR}")
      heddle_test_options(heddle_conformance_cases)
      # Of every case each element is made and compared there.
      set_source_files_properties("${folder}/numbers.cpp" PROPERTIES COMPILE_OPTIONS -O2
        SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
      heddle_test(driver_conformance LABEL unit SOURCES ${sources}
                  LINK heddle_conformance_cases ${HEDDLE_ALL})
      if(TARGET heddle_metal)
        # By itself: executables share a precompiled header, which is C++.
        add_library(heddle_metal_event OBJECT "${folder}/metal_event.mm")
        target_link_libraries(heddle_metal_event PRIVATE heddle_metal heddle_metal_sdk)
        target_include_directories(heddle_metal_event PRIVATE "${PROJECT_SOURCE_DIR}")
        target_compile_definitions(heddle_metal_event PRIVATE HEDDLE_METAL=1)
        heddle_test_options(heddle_metal_event)
        target_compile_definitions(driver_conformance PRIVATE HEDDLE_METAL=1)
        target_link_libraries(driver_conformance PRIVATE heddle_metal_event)
      endif()
    elseif(name STREQUAL "sim_device")
      heddle_test(sim_device_test LABEL unit SOURCES ${sources} LINK heddle_sim heddle_host heddle_batch)
    elseif(name MATCHES "^(api|stress|host_models|hostile|differential|process_points)$" AND NOT HEDDLE_API)
      continue()
    elseif(name STREQUAL "differential")
      heddle_test(differential_test LABEL unit SOURCES ${sources} LINK heddle_conformance_cases heddle_api)
      foreach(first 100000 125000 150000 175000)  # others than the unit test's, in the stage graphs
        heddle_ctest(random_graphs_${first} TARGET differential_test LABELS graphs
          ENVIRONMENT HEDDLE_GRAPH_FIRST=${first} HEDDLE_GRAPHS=25000)
      endforeach()
    elseif(name STREQUAL "simulated")
      if(HEDDLE_SIM)
        heddle_test(simulated_test LABEL sim LINK heddle_conformance_cases ${HEDDLE_ALL}
                    SOURCES ${sources} ${conformance_checks})
      endif()
    elseif(name STREQUAL "fault_points")
      if(HEDDLE_SIM)
        heddle_test(fault_points_test LABEL sim LINK ${HEDDLE_ALL} SOURCES ${sources})
      endif()
    elseif(name STREQUAL "hostile")
      # Its models are made as those of the reader's own tests.
      heddle_test(hostile_test LABEL unit SOURCES ${sources} LINK ${HEDDLE_ALL})
      target_sources(hostile_test PRIVATE "${PROJECT_SOURCE_DIR}/src/onnx/sample_model_test.cpp")
      if(HEDDLE_SANITIZE)  # it asks for more memory than there is, which is refused
        set_property(TEST hostile_test APPEND PROPERTY ENVIRONMENT
          "ASAN_OPTIONS=detect_leaks=${HEDDLE_DETECT_LEAKS}:allocator_may_return_null=1")
      endif()
    elseif(name STREQUAL "stress")
      heddle_test(stress_test LABEL stress SOURCES ${sources} LINK ${HEDDLE_ALL})
      target_compile_definitions(stress_test PRIVATE HEDDLE_TEST_MODELS="${PROJECT_SOURCE_DIR}/build/models")
      if(HEDDLE_SANITIZE)
        set_property(TEST stress_test APPEND PROPERTY ENVIRONMENT HEDDLE_TEST_NARROWER=4)
      endif()
    elseif(name STREQUAL "host_models")
      heddle_test(host_models_test LABEL unit SOURCES ${sources} LINK ${HEDDLE_ALL})
      target_compile_definitions(host_models_test
        PRIVATE HEDDLE_TEST_MODELS="${PROJECT_SOURCE_DIR}/build/models")
    else()
      heddle_test(${name}_test LABEL unit SOURCES ${sources} LINK ${HEDDLE_ALL})
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.cpp")
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    heddle_test(${name} LABEL unit SOURCES "${source}" LINK ${HEDDLE_ALL})
  endforeach()
endfunction()

# bench/base/x_bench.cpp links heddle_base only, so that a question about one part needs that part alone.
function(heddle_benches)
  add_custom_target(benches)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*_bench.cpp"
       "${PROJECT_SOURCE_DIR}/src/*_bench.cpp")
  if(NOT TARGET heddle_metal)
    list(FILTER sources EXCLUDE REGEX "/bench/metal/")
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    get_filename_component(folder "${source}" DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    add_executable(${name} EXCLUDE_FROM_ALL "${source}")
    if(TARGET heddle_${folder})
      target_link_libraries(${name} PRIVATE heddle_${folder})
    else()
      target_link_libraries(${name} PRIVATE ${HEDDLE_ALL})
    endif()
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
    add_dependencies(benches ${name})
  endforeach()
endfunction()

heddle_test_folders()
heddle_benches()
# One of the two sides of bench/cuda/figure.py. Small, with libheddle beside it: tools/gpu_pack.sh carries it.
if(TARGET heddle_shared)
  add_executable(cuda_callers EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/bench/cuda/callers.cpp")
  target_link_libraries(cuda_callers PRIVATE heddle_shared heddle_base)
  set_target_properties(cuda_callers PROPERTIES BUILD_RPATH "$ORIGIN/../site/heddle"
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  add_dependencies(benches cuda_callers)
endif()
# The stress tests on the simulated device. Left out: locks are counted for synchronous devices, and the
# memory limit of the other test has no room for staging memory beside the device's.
if(TARGET stress_test)
  heddle_ctest(stress_on_sim TARGET stress_test LABELS stress
    ENVIRONMENT HEDDLE_DEVICE=sim HEDDLE_TEST_NARROWER=8 ${HEDDLE_SANITIZER_OPTIONS}
    ARGUMENTS "-tce=warm calls on thirty-one streams*,four threads under memory pressure*")
endif()

# What exact models promise, with oneDNN's kernels for AVX2, which mix rows; and products of sixteen bits
# without our kernels for AVX-512. Elsewhere than on x86 oneDNN does not look at the variable.
foreach(target host_test driver_conformance stress_test)
  if(TARGET ${target} AND NOT HEDDLE_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    heddle_ctest(exact_on_avx2_${target} TARGET ${target} LABELS host
      ENVIRONMENT DNNL_MAX_CPU_ISA=AVX2 ${HEDDLE_SANITIZER_OPTIONS}
      ARGUMENTS "-tc=exact*,a row's bits*,*sixteen bits*,rows *bf16*")
  endif()
endforeach()

# What takes longest is begun first: a processor would else idle beside it at the end.
foreach(long host_test=50 batch_sim_test=50 fault_points_test=45 runtime_sim_test=40 process_points_test=40
        exact_on_avx2_host_test=35 stress_test=30 batch_test=30 driver_conformance=20)
  string(REPLACE "=" ";" long "${long}")
  list(GET long 0 name)
  list(GET long 1 cost)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endforeach()

get_property(test_targets GLOBAL PROPERTY HEDDLE_TEST_TARGETS)
add_custom_target(tests DEPENDS ${test_targets})
get_property(sanitized_targets GLOBAL PROPERTY HEDDLE_SANITIZED_TARGETS)
add_custom_target(sanitize_tests DEPENDS ${sanitized_targets})
get_property(sim_targets GLOBAL PROPERTY HEDDLE_SIM_TARGETS)
add_custom_target(sim_tests DEPENDS ${sim_targets})
