# fuzz_targets: tests/fuzz/x_fuzz.cpp becomes build/asan/fuzz/x, a program of libFuzzer's, in the preset asan.
# tools/fuzz.py runs them.
# fuzz_every is one program of them all, which behaves as the target whose name it is started by: a machine of
# many cores is sent it (tools/cores_pack.py).
add_custom_target(fuzz_targets)
add_executable(fuzz_every EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/tests/fuzz/every_target.cpp")
target_link_libraries(fuzz_every PRIVATE heddle_api heddle_conformance_cases)
target_link_options(fuzz_every PRIVATE -fsanitize=fuzzer)
heddle_test_options(fuzz_every)
set_target_properties(fuzz_every PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz_every")
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" short "${name}")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(${name} PRIVATE heddle_api)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE LLVMFuzzerTestOneInput=${name})
  heddle_test_options(${name})
  add_executable(fuzz_${short} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  target_link_libraries(fuzz_${short} PRIVATE heddle_api)
  target_link_options(fuzz_${short} PRIVATE
    -fsanitize=fuzzer "LINKER:--defsym=LLVMFuzzerTestOneInput=${name}")
  set_target_properties(fuzz_${short} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME ${short} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  add_dependencies(fuzz_targets fuzz_${short})
  target_sources(fuzz_every PRIVATE $<TARGET_OBJECTS:${name}>)
  list(APPEND every "TARGET(${short})")
endforeach()
list(JOIN every " " every)
target_compile_definitions(fuzz_every PRIVATE "HEDDLE_FUZZ_TARGETS=${every}")
# Graphs that bytes decide are those of the random ones (tests/differential).
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/differential/*.cpp")
list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
target_sources(graphs_fuzz PRIVATE ${sources})
target_link_libraries(graphs_fuzz PRIVATE heddle_conformance_cases)
target_link_libraries(fuzz_graphs PRIVATE heddle_conformance_cases)
# The reader of DLPack's descriptions, which knows nothing of Python.
target_sources(dlpack_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/python/module/dlpack_array.cpp")
# Files of parts that are not counted otherwise.
foreach(source base/kept_file.cpp base/kept_lines.cpp drivers/host/tuning/tuning_file.cpp)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/${source}" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "${HEDDLE_FUZZ_COUNTERS}")
endforeach()
