# Tests of the Metal double, the Metal driver and the guard. Label metal; the target metal_tests builds them.

# What MPSGraph itself does at the limits that the driver goes round: a program for a Mac.
if(NOT HEDDLE_METAL STREQUAL "OFF")
  set(probes "${PROJECT_SOURCE_DIR}/tests/metal_driver/limit_")
  add_library(heddle_limit_questions OBJECT
    "${probes}operators.mm" "${probes}products.mm" "${probes}sizes.mm" "${probes}trial.mm")
  target_link_libraries(heddle_limit_questions PUBLIC heddle_flags heddle_base heddle_metal_sdk)
  add_executable(limit_probes "${probes}probes.mm")
  target_link_libraries(limit_probes PRIVATE heddle_limit_questions)
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS limit_probes)
endif()
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

# heddle_double_test(name FOLDER folder LINK targets...): tests of one of the double's libraries, without what
# stands on it.
function(heddle_double_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER" "LINK")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${arg_FOLDER}/*_test.mm")
  heddle_test(${name} LABEL metal SOURCES ${sources} LINK heddle_flags ${arg_LINK})
  target_compile_options(${name} PRIVATE "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_COMPILE_OPTIONS>")
  target_include_directories(${name} PRIVATE
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_INCLUDE_DIRECTORIES>")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS ${name})
endfunction()
heddle_double_test(metal_foundation_test FOLDER tests/metal_double/foundation LINK metal_foundation)
heddle_double_test(metal_double_test FOLDER tests/metal_double/metal LINK metal_double metal_foundation)

# The suites of all drivers, on this one, with models that the double computes in good time: on the
# newest Mac that is known and on the oldest, as the field met them (tests/metal_double/control.h).
set(narrower 4)
if(HEDDLE_SANITIZE)
  set(narrower 8)
endif()
set(zombies 512)  # fewer dead objects than the double keeps by itself: a soak holds malloc's bytes to a bound
function(heddle_on_metal name target mac)
  heddle_ctest(${name} TARGET ${target} LABELS metal ARGUMENTS ${ARGN}
    ENVIRONMENT HEDDLE_DEVICE=metal HEDDLE_TEST_DRIVER=metal HEDDLE_METAL_DOUBLE_MAC=${mac}
                HEDDLE_TEST_NARROWER=${narrower} HEDDLE_METAL_DOUBLE_ZOMBIES=${zombies}
                ${HEDDLE_SANITIZER_OPTIONS})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS ${target})
endfunction()
# Left out: contention is counted for synchronous devices (here handlers and the reaper share a stream's lock
# with its owner).
set(counted "warm calls on thirty-one streams*")
heddle_on_metal(stress_on_metal stress_test 26.0-M4 "-tce=${counted}")
if(HEDDLE_SANITIZE)
  # What one thread does, for up to a minute: the stages tsan_whole and asan_whole run it.
  set(of_one_thread "every operator gives the reference's values*,a row's bits are those of the row alone*")
  heddle_on_metal(conformance_on_metal driver_conformance 26.0-M4 "-tce=${of_one_thread}")
  heddle_on_metal(operators_on_metal driver_conformance 26.0-M4 "-tc=${of_one_thread}")
  set_tests_properties(operators_on_metal PROPERTIES LABELS long)
else()
  heddle_on_metal(conformance_on_metal driver_conformance 26.0-M4)
  heddle_on_metal(conformance_on_m1 driver_conformance 14.0-M1)
  heddle_on_metal(stress_on_m1 stress_test 14.0-M1 "-tce=${counted}")
endif()

# libheddle.so.0 with the double's driver in it, for tests from Python: LD_PRELOAD puts it in the place of the
# installed one.
add_library(heddle_on_the_double SHARED EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cmake/libheddle.cpp"
  "$<FILTER:$<TARGET_OBJECTS:heddle_api>,EXCLUDE,process_devices>")
target_link_libraries(heddle_on_the_double PRIVATE heddle_api_on_metal)
set_target_properties(heddle_on_the_double PROPERTIES
  OUTPUT_NAME heddle SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/on_the_double")
set_property(GLOBAL APPEND PROPERTY HEDDLE_METAL_TARGETS heddle_on_the_double)

file(GLOB driver_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_driver/*_test.cpp")
if(driver_tests)
  heddle_metal_test(metal_driver_test
    LINK heddle_metal heddle_metal_event heddle_conformance_cases heddle_limit_questions
    SOURCES ${driver_tests} "${PROJECT_SOURCE_DIR}/tests/driver_conformance/session.cpp"
            "${PROJECT_SOURCE_DIR}/tests/driver_conformance/op_check.cpp")
  target_compile_definitions(metal_driver_test PRIVATE
    HEDDLE_METAL=1 "HEDDLE_DRIVERS_DOCUMENT=\"${PROJECT_SOURCE_DIR}/docs/drivers.md\""
    "HEDDLE_LIMIT_PROBES=\"$<TARGET_FILE:limit_probes>\"")
  add_dependencies(metal_driver_test limit_probes)
endif()
if(driver_tests AND NOT HEDDLE_SANITIZE)  # it has an operator new of its own
  heddle_metal_test(metal_no_memory_test LINK heddle_metal heddle_metal_event
    SOURCES "${PROJECT_SOURCE_DIR}/tests/metal_driver/no_memory.mm"
            "${PROJECT_SOURCE_DIR}/tests/host_runtime/out_of_memory_new.cpp")
  target_compile_definitions(metal_no_memory_test PRIVATE HEDDLE_METAL=1)
endif()
include(HeddleGuardTests)
file(GLOB graph_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/metal_double/graph/*_test.mm")
if(graph_tests AND TARGET heddle_metal)
  heddle_metal_test(metal_graph_test SOURCES ${graph_tests} LINK heddle_conformance_cases heddle_metal)
endif()

# metal_apple_syntax: what ships for macOS also obeys Apple's language rules. In no build by default.
function(heddle_apple_syntax)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/drivers/metal/*.mm"
       "${PROJECT_SOURCE_DIR}/agx_guard/*.mm")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.mm$")
  set(drivers ${sources})
  list(FILTER drivers INCLUDE REGEX "/drivers/")
  list(FILTER sources EXCLUDE REGEX "/drivers/")
  heddle_unite_objcxx(metal_apple drivers)
  set(stamps "")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/apple_syntax")
  foreach(source IN LISTS sources drivers)
    string(MAKE_C_IDENTIFIER "${source}" name)
    set(stamp "${PROJECT_BINARY_DIR}/apple_syntax/${name}.ok")
    add_custom_command(OUTPUT "${stamp}"
      COMMAND ${CMAKE_OBJCXX_COMPILER} -std=c++20 -fsyntax-only -fobjc-runtime=macosx-14 -fno-objc-arc
              -fblocks -fobjc-exceptions -Wall -Wextra -Werror -Wno-nullability-completeness
              "-DHEDDLE_VERSION=\"${PROJECT_VERSION}\""
              "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/src" "-I${PROJECT_SOURCE_DIR}/include"
              "-I${PROJECT_SOURCE_DIR}/tests/metal_double/include"
              -idirafter "${HEDDLE_OBJC_INCLUDE}" "${source}" -MD -MF "${stamp}.d" -MT "${stamp}"
      COMMAND ${CMAKE_COMMAND} -E touch "${stamp}"
      DEPENDS "${source}" DEPFILE "${stamp}.d" COMMENT "Apple's rules: ${source}" VERBATIM)
    list(APPEND stamps "${stamp}")
  endforeach()
  add_custom_target(metal_apple_syntax DEPENDS ${stamps})
endfunction()
heddle_apple_syntax()

# What takes longest is begun first.
set_tests_properties(conformance_on_metal stress_on_metal PROPERTIES COST 60)

get_property(metal_targets GLOBAL PROPERTY HEDDLE_METAL_TARGETS)
add_custom_target(metal_tests DEPENDS ${metal_targets})
