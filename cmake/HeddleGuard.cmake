# libagx_guard, its stress and bench; on Linux also the double of Apple's GPU driver that they run on.
# All of it lies in one folder, build/<preset>/guard: the double finds its driver beside itself.
if(HEDDLE_METAL STREQUAL "OFF")
  return()
endif()
set(guard_output "${PROJECT_BINARY_DIR}/guard")
if(HEDDLE_METAL STREQUAL "DOUBLE")
  set(agx_folder "${PROJECT_SOURCE_DIR}/tests/metal_double/agx")
  # Two libraries, as on a Mac: the framework that programs link, and the driver that the first device loads.
  add_library(agx_metal SHARED "${agx_folder}/front.cpp")
  target_include_directories(agx_metal PUBLIC "${agx_folder}")
  target_compile_features(agx_metal PUBLIC cxx_std_20)
  target_link_libraries(agx_metal PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(agx_metal PROPERTIES CXX_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY
                        "${guard_output}")
  file(GLOB agx_sources CONFIGURE_DEPENDS "${agx_folder}/*.mm")
  add_library(AGXMetalG16X SHARED ${agx_sources})
  target_compile_options(AGXMetalG16X PRIVATE
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_COMPILE_OPTIONS>" -Wall -Wextra -Wpedantic -Wshadow)
  target_include_directories(AGXMetalG16X PRIVATE
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_INCLUDE_DIRECTORIES>")
  target_link_libraries(AGXMetalG16X PRIVATE metal_foundation Threads::Threads)
  set_target_properties(AGXMetalG16X PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${guard_output}")
endif()

add_subdirectory("${PROJECT_SOURCE_DIR}/agx_guard" "${PROJECT_BINARY_DIR}/guard_build")
set_target_properties(agx_guard agx_guard_stress agx_guard_bench PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY "${guard_output}" RUNTIME_OUTPUT_DIRECTORY "${guard_output}")
if(HEDDLE_METAL STREQUAL "DOUBLE")
  # CMake writes no run path into programs that the Objective-C++ compiler links on Linux.
  set_target_properties(agx_guard_stress agx_guard_bench PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(agx_guard_stress AGXMetalG16X agx_guard)
  add_dependencies(agx_guard_bench AGXMetalG16X agx_guard)
endif()
