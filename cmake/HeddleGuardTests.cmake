# Tests of libagx_guard, on the AGX double alone: the Metal double makes its device under the same name.
file(GLOB guard_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/agx_guard/*_test.mm")
list(FILTER guard_tests EXCLUDE REGEX "ablation_test")
# The lock is not exported: its test has a copy of its own.
heddle_test(agx_guard_test LABEL metal
            SOURCES ${guard_tests} "${PROJECT_SOURCE_DIR}/agx_guard/test_gpu.mm"
                    "${PROJECT_SOURCE_DIR}/agx_guard/lock.cpp" "${PROJECT_SOURCE_DIR}/agx_guard/settings.cpp"
            LINK heddle_flags agx_guard agx_metal metal_foundation)
heddle_test(agx_guard_ablation_test LABEL metal
            SOURCES "${PROJECT_SOURCE_DIR}/agx_guard/ablation_test.mm"
                    "${PROJECT_SOURCE_DIR}/agx_guard/test_gpu.mm"
            LINK heddle_flags agx_guard agx_metal metal_foundation)
foreach(test agx_guard_test agx_guard_ablation_test)
  target_compile_options(${test} PRIVATE "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_COMPILE_OPTIONS>")
  target_include_directories(${test} PRIVATE
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_INCLUDE_DIRECTORIES>")
  set_target_properties(${test} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/guard"
                        LINKER_LANGUAGE CXX)
  add_dependencies(${test} AGXMetalG16X agx_guard_stress)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT AGX_GUARD_RECENT=4 AGX_GUARD_WARN_MS=20)
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS ${test})
endforeach()
