# Tests of the Metal double, the Metal driver and the guard. Label metal; the target metal_tests builds them.
if(NOT HEDDLE_METAL STREQUAL "DOUBLE")
  return()
endif()

# heddle_metal_test(name SOURCES files... LINK targets...): a doctest executable that may say
# #import <Metal/Metal.h>.
function(heddle_metal_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  heddle_test(${name} LABEL metal SOURCES ${arg_SOURCES} LINK ${arg_LINK} heddle_metal_sdk)
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS ${name})
endfunction()

file(GLOB foundation_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_double/foundation/*_test.mm")
if(foundation_tests)
  heddle_metal_test(metal_foundation_test SOURCES ${foundation_tests} LINK heddle_flags)
endif()
file(GLOB double_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_double/metal/*_test.mm")
if(double_tests)
  heddle_metal_test(metal_double_test SOURCES ${double_tests} LINK heddle_flags)
endif()

# The suites of all drivers, on this one.
function(heddle_on_metal name target)
  add_test(NAME ${name} COMMAND ${HEDDLE_TEST_LAUNCHER} $<TARGET_FILE:${target}> ${ARGN}
           WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    LABELS metal TIMEOUT 900 ENVIRONMENT "HEDDLE_DEVICE=metal;${HEDDLE_SANITIZER_OPTIONS}")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS ${target})
endfunction()
heddle_on_metal(stress_on_metal stress_test)
heddle_on_metal(conformance_on_metal driver_conformance)

file(GLOB driver_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_driver/*_test.cpp")
if(driver_tests)
  heddle_metal_test(metal_driver_test LINK heddle_metal
    SOURCES ${driver_tests} "${PROJECT_SOURCE_DIR}/tests/driver_conformance/session.cpp")
endif()
include(HeddleGuardTests)
file(GLOB graph_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_double/graph/*_test.mm")
if(graph_tests AND TARGET heddle_metal)
  file(GLOB cases CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/driver_conformance/*_cases.cpp")
  heddle_metal_test(metal_graph_test SOURCES ${graph_tests} ${cases} LINK heddle_metal)
endif()

get_property(metal_targets GLOBAL PROPERTY HEDDLE_METAL_TARGETS)
add_custom_target(metal_tests DEPENDS ${metal_targets})
