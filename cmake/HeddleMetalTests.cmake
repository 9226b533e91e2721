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

get_property(metal_targets GLOBAL PROPERTY HEDDLE_METAL_TARGETS)
add_custom_target(metal_tests DEPENDS ${metal_targets})
