# fuzz_targets: tests/fuzz/x_fuzz.cpp becomes build/asan/fuzz/x, a program of libFuzzer's, in the preset asan.
# tools/fuzz.py runs them.
add_custom_target(fuzz_targets)
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" short "${name}")
  add_executable(fuzz_${short} EXCLUDE_FROM_ALL "${source}")
  target_link_libraries(fuzz_${short} PRIVATE heddle_api)
  target_include_directories(fuzz_${short} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_options(fuzz_${short} PRIVATE -fsanitize=fuzzer)
  heddle_test_options(fuzz_${short})
  set_target_properties(fuzz_${short} PROPERTIES
    OUTPUT_NAME ${short} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
  add_dependencies(fuzz_targets fuzz_${short})
endforeach()
# Graphs that bytes decide are those of the random ones (tests/differential).
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/differential/*.cpp")
list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
target_sources(fuzz_graphs PRIVATE ${sources})
target_link_libraries(fuzz_graphs PRIVATE heddle_conformance_cases)
# The reader of DLPack's descriptions, which knows nothing of Python.
target_sources(fuzz_dlpack PRIVATE "${PROJECT_SOURCE_DIR}/python/module/dlpack_array.cpp")
# Files of parts that are not counted otherwise.
foreach(source base/kept_file.cpp base/kept_lines.cpp drivers/host/tuning/tuning_file.cpp)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/${source}" PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "${HEDDLE_FUZZ_COUNTERS}")
endforeach()
