# heddle_library(name FOLDER src/x LINK targets...)
#   heddle_<name>  static library of every *.cpp and *.mm below the folder that is neither a test nor a
#                  benchmark; an interface library while the folder holds headers only
#   <name>_test    executable of every *_test.cpp and *_test.mm below the folder, registered with ctest
#   <name>_sim_test  the same of every *_sim_test.cpp, in builds with HEDDLE_SIM
function(heddle_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER" "LINK")
  set(folder "${PROJECT_SOURCE_DIR}/${arg_FOLDER}")
  if(NOT IS_DIRECTORY "${folder}")
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/*.mm")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${folder}/*.h")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.(cpp|mm)$")
  heddle_take_simulations(tests simulations)
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.(cpp|mm)$")

  set(link "")
  foreach(target IN LISTS arg_LINK)
    if(TARGET ${target} OR NOT target MATCHES "^heddle_")
      list(APPEND link ${target})
    endif()
  endforeach()
  if(sources)
    heddle_unite_objcxx(heddle_${name} sources)
    add_library(heddle_${name} STATIC ${sources} ${headers})
    target_link_libraries(heddle_${name} PUBLIC heddle_flags ${link})
    if(NOT name MATCHES "^(base|ir|batch)$")  # whose loops the tests spend their time in
      heddle_unoptimised(heddle_${name})
    endif()
    heddle_fuzzed(heddle_${name})
  else()
    add_library(heddle_${name} INTERFACE)
    target_link_libraries(heddle_${name} INTERFACE heddle_flags ${link})
  endif()
  # Tests link the driver and are compiled without its flags: as in a build without it, so that what ccache
  # has of them serves both.
  if(name STREQUAL "metal")
    set_property(GLOBAL APPEND PROPERTY HEDDLE_LIBRARIES "$<LINK_ONLY:heddle_metal>")
  elseif(NOT name STREQUAL "cuda" OR HEDDLE_API)  # without the API its own tests link it
    set_property(GLOBAL APPEND PROPERTY HEDDLE_LIBRARIES heddle_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY HEDDLE_FOLDERS "${folder}")

  if(tests AND HEDDLE_TESTS)
    heddle_test(${name}_test LABEL unit SOURCES ${tests} LINK heddle_${name})
  endif()
  if(simulations AND HEDDLE_TESTS AND HEDDLE_SIM)
    heddle_test(${name}_sim_test LABEL sim SOURCES ${simulations} LINK heddle_${name})
  endif()
endfunction()

# heddle_take_simulations(from to): takes *_sim_test.cpp out of the list `from` into the list `to`.
function(heddle_take_simulations from to)
  set(taken ${${from}})
  list(FILTER taken INCLUDE REGEX "_sim_test\\.cpp$")
  set(left ${${from}})
  list(FILTER left EXCLUDE REGEX "_sim_test\\.cpp$")
  set(${from} "${left}" PARENT_SCOPE)
  set(${to} "${taken}" PARENT_SCOPE)
endfunction()

# The optimiser takes up to five sixths of what compiling instrumented tables takes, and the standard
# library's headers an eighth of the rest.
function(heddle_unoptimised target)
  if(NOT HEDDLE_SANITIZE)
    return()
  endif()
  target_compile_options(${target} PRIVATE -O0)
  get_target_property(sources ${target} SOURCES)
  if("${target} ${sources}" MATCHES "heddle_host|\\.mm")
    return()  # language options of their own
  endif()
  if(HEDDLE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    heddle_precompiled()
    target_precompile_headers(${target} REUSE_FROM heddle_precompiled)
  endif()
endfunction()

# What libFuzzer's searches are guided by: tests/fuzz drives these libraries. Of the others it would count the
# loops of kernels, which a new input does not make new.
set(HEDDLE_FUZZED heddle_ir heddle_plan heddle_batch heddle_onnx_proto heddle_onnx heddle_api)
set(HEDDLE_FUZZ_COUNTERS -fsanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
function(heddle_fuzzed target)
  if(HEDDLE_FUZZ AND target IN_LIST HEDDLE_FUZZED)
    target_compile_options(${target} PRIVATE ${HEDDLE_FUZZ_COUNTERS})
  endif()
  if(HEDDLE_COVERAGE AND target IN_LIST HEDDLE_COVERED)
    target_compile_options(${target} PRIVATE -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(${target} PUBLIC -fprofile-instr-generate)
  endif()
endfunction()

# The headers of the standard library that most sources include, compiled once for all that is not optimised.
function(heddle_precompiled)
  if(TARGET heddle_precompiled)
    return()
  endif()
  set(source "${PROJECT_BINARY_DIR}/precompiled.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(heddle_precompiled OBJECT "${source}")
  target_link_libraries(heddle_precompiled PRIVATE heddle_flags)
  target_compile_options(heddle_precompiled PRIVATE -O0)
  target_precompile_headers(heddle_precompiled PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
    <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <stop_token>
    <string> <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
endfunction()

# Tests need not be fast; what they test keeps its -O3.
function(heddle_test_options target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  heddle_unoptimised(${target})
endfunction()

# Tables that one thread computes or compiles. The thread sanitizer takes ten seconds to a minute for each and
# has nothing to find there: the stage tsan_whole runs them. The address sanitizer's stage runs them, too.
set(HEDDLE_OF_ONE_THREAD_host_test "host kernels:*,no division sends*")
set(HEDDLE_OF_ONE_THREAD_metal_driver_test "no operator makes an array*,probes of full size*")
set(HEDDLE_OF_ONE_THREAD_metal_graph_test "metal lowering: every operator gives*,metal lowering: NaN goes*")

# heddle_test(name LABEL unit|stress|sim SOURCES files... LINK targets... [ARGUMENTS of its test...])
# A doctest executable. It also carries the label sanitize when it is part of the sanitizer runs, and sim when
# it is part of the simulator's.
function(heddle_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LINK;ARGUMENTS")
  set(arguments ${arg_ARGUMENTS})
  if(NOT TARGET heddle_test_main)
    add_library(heddle_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/doctest_main.cpp")
    target_link_libraries(heddle_test_main PRIVATE heddle_flags)
    heddle_test_options(heddle_test_main)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} heddle_test_main)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  heddle_test_options(${name})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_TEST_TARGETS ${name})

  set(labels ${arg_LABEL})
  if(name IN_LIST HEDDLE_SANITIZED_TESTS)
    list(APPEND labels sanitize)
    set_property(GLOBAL APPEND PROPERTY HEDDLE_SANITIZED_TARGETS ${name})
  endif()
  # That seams leave threads outside a simulation alone is shown by the tests of base.
  if(HEDDLE_SIM AND (arg_LABEL STREQUAL "sim" OR name STREQUAL "base_test"))
    list(APPEND labels sim)
    set_property(GLOBAL APPEND PROPERTY HEDDLE_SIM_TARGETS ${name})
  endif()
  set(environment "HEDDLE_PYTHON=${HEDDLE_PYTHON};${HEDDLE_SANITIZER_OPTIONS};${HEDDLE_TEST_ENVIRONMENT}")
  if(HEDDLE_SANITIZE STREQUAL "thread" AND DEFINED HEDDLE_OF_ONE_THREAD_${name})
    heddle_ctest(${name}_of_one_thread TARGET ${name} LABELS long ENVIRONMENT ${environment}
                 ARGUMENTS "-tc=${HEDDLE_OF_ONE_THREAD_${name}}")
    list(APPEND arguments "-tce=${HEDDLE_OF_ONE_THREAD_${name}}")
  endif()
  heddle_ctest(${name} TARGET ${name} LABELS ${labels} ENVIRONMENT ${environment} ARGUMENTS ${arguments})
  if(arg_LABEL STREQUAL "sim")  # one thread of it runs at a time
    set_tests_properties(${name} PROPERTIES PROCESSOR_AFFINITY ON)
  endif()
  # More of the schedules that base/schedules_fixture.h explores, for the stage sim_long.
  set(explores ${arg_SOURCES})
  list(FILTER explores INCLUDE REGEX "schedules_sim_test\\.cpp$")
  if(explores)
    set(HEDDLE_TEST_LAUNCHER "${HEDDLE_PYTHON}" "${PROJECT_SOURCE_DIR}/tools/watched.py" 3300)
    heddle_ctest(${name}_long TARGET ${name} LABELS sim_long ARGUMENTS "-tc=schedules:*"
                 ENVIRONMENT ${environment} HEDDLE_SIM_BOUND=3)
    set_tests_properties(${name}_long PROPERTIES TIMEOUT 3600)
  endif()
endfunction()

# heddle_ctest(name TARGET doctest-executable LABELS labels... ENVIRONMENT variables... ARGUMENTS of it...)
function(heddle_ctest name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET" "LABELS;ENVIRONMENT;ARGUMENTS")
  add_test(NAME ${name} COMMAND ${HEDDLE_TEST_LAUNCHER} $<TARGET_FILE:${arg_TARGET}> ${arg_ARGUMENTS}
           WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT 900 ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

set(HEDDLE_SANITIZED_TESTS
  base_test ir_test device_test host_test sim_test sim_device_test runtime_test batch_test api_test
  stress_test)
if(APPLE)  # Apple's address sanitizer has no leak detector and refuses the option
  set(HEDDLE_DETECT_LEAKS 0)
else()
  set(HEDDLE_DETECT_LEAKS 1)
endif()
set(HEDDLE_TSAN_SUPPRESSIONS "${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan.supp")
# Threads that go on while a process ends are watched for another 100 ms, not 1 s: tests start many.
string(CONCAT tsan_options "halt_on_error=1 second_deadlock_stack=1 atexit_sleep_ms=100 "
       "suppressions=${HEDDLE_TSAN_SUPPRESSIONS}")
set(HEDDLE_SANITIZER_OPTIONS
  "TSAN_OPTIONS=${tsan_options}"
  "ASAN_OPTIONS=detect_leaks=${HEDDLE_DETECT_LEAKS}"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/sanitizers/lsan.supp"
  "UBSAN_OPTIONS=print_stacktrace=1")

# A test that hangs says where before it dies: well above what a loaded machine takes, below ctest's limit.
set(HEDDLE_TEST_LAUNCHER "${HEDDLE_PYTHON}" "${PROJECT_SOURCE_DIR}/tools/watched.py" 600)
# GCC 12's sanitizers cannot always place their shadow memory under recent kernels' address randomisation.
if(HEDDLE_SANITIZE)
  find_program(HEDDLE_SETARCH setarch)
  if(HEDDLE_SETARCH)
    execute_process(COMMAND ${HEDDLE_SETARCH} -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(NOT refused)
      list(APPEND HEDDLE_TEST_LAUNCHER ${HEDDLE_SETARCH} -R)
    endif()
  endif()
endif()
# Programs of another machine run in its emulator, and so do the programs that tests start.
if(CMAKE_CROSSCOMPILING_EMULATOR)
  list(APPEND HEDDLE_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  list(APPEND HEDDLE_TEST_ENVIRONMENT "HEDDLE_TEST_EMULATOR=${emulator}")
endif()
