# HEDDLE_METAL: where the Metal driver's frameworks come from.
#   APPLE   macOS: Apple's frameworks
#   DOUBLE  our own in tests/metal_double, for the tests: libheddle.so stays without it. Needs clang++ for
#           Objective-C++, and for C++ as well under a sanitizer, whose run time there is one of (presets
#           metal-double, tsan, asan)
#   OFF     nothing of this is compiled
# Gives the target heddle_metal_sdk: include paths, language flags and libraries for everything that says
# #import <Metal/Metal.h>.
if(APPLE)
  set(metal_default APPLE)
else()
  set(metal_default OFF)
endif()
set(HEDDLE_METAL ${metal_default} CACHE STRING "Metal driver: OFF | APPLE | DOUBLE")
set_property(CACHE HEDDLE_METAL PROPERTY STRINGS OFF APPLE DOUBLE)
if(NOT HEDDLE_METAL MATCHES "^(OFF|APPLE|DOUBLE)$")
  message(FATAL_ERROR "HEDDLE_METAL is '${HEDDLE_METAL}'; it must be OFF, APPLE or DOUBLE")
endif()

# What makes "metal" a name of Device. On a Mac that is the library's business; the double is the tests'
# alone, which link a copy of their own of the one file that lists the drivers.
function(heddle_metal_in_api)
  set(drivers "${PROJECT_SOURCE_DIR}/src/api/process_devices.cpp")
  set_source_files_properties("${drivers}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(HEDDLE_METAL STREQUAL "APPLE")
    target_link_libraries(heddle_api PUBLIC heddle_metal)
    set_property(SOURCE "${drivers}" APPEND PROPERTY COMPILE_DEFINITIONS HEDDLE_METAL=1)
  elseif(HEDDLE_METAL STREQUAL "DOUBLE")
    add_library(heddle_api_on_metal OBJECT "${drivers}")
    target_link_libraries(heddle_api_on_metal PUBLIC heddle_api PRIVATE heddle_metal)
    target_compile_definitions(heddle_api_on_metal PRIVATE HEDDLE_METAL=1)
    set_property(GLOBAL APPEND PROPERTY HEDDLE_LIBRARIES heddle_api_on_metal)
  endif()
endfunction()
if(HEDDLE_METAL STREQUAL "OFF")
  return()
endif()

if(HEDDLE_METAL STREQUAL "APPLE" OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(CMAKE_OBJCXX_COMPILER "${CMAKE_CXX_COMPILER}")
else()
  find_program(HEDDLE_CLANG clang++-16)
  if(NOT HEDDLE_CLANG)
    message(FATAL_ERROR "HEDDLE_METAL=DOUBLE needs clang++-16: install clang-16 (tools/setup.sh test does)")
  endif()
  set(CMAKE_OBJCXX_COMPILER "${HEDDLE_CLANG}")
endif()
enable_language(OBJCXX)
set(CMAKE_OBJCXX_STANDARD 20)
set(CMAKE_OBJCXX_STANDARD_REQUIRED ON)
set(CMAKE_OBJCXX_EXTENSIONS OFF)
set(CMAKE_OBJCXX_VISIBILITY_PRESET hidden)
set(CMAKE_OBJCXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
set(CMAKE_OBJCXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_OBJCXX_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

add_library(heddle_metal_sdk INTERFACE)
# Nullability is written in headers that stand for Apple's; our own need not repeat it.
target_compile_options(heddle_metal_sdk INTERFACE
  "$<$<COMPILE_LANGUAGE:OBJCXX>:-fno-objc-arc;-Wno-nullability-completeness>")

if(HEDDLE_METAL STREQUAL "APPLE")
  target_link_libraries(heddle_metal_sdk INTERFACE
    "-framework Foundation" "-framework Metal" "-framework MetalPerformanceShaders"
    "-framework MetalPerformanceShadersGraph")
  return()
endif()

if(NOT CMAKE_OBJCXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "HEDDLE_METAL=DOUBLE needs clang++ for Objective-C++: use --preset metal-double")
endif()
if(HEDDLE_SANITIZE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "HEDDLE_METAL=DOUBLE under a sanitizer needs clang++ for C++: use --preset asan")
endif()
# GCC's run time for Objective-C; clang does not search its folder. Behind all others, or it would shadow
# clang's own headers.
file(GLOB objc_headers "/usr/lib/gcc/*/*/include/objc/objc.h")
if(NOT objc_headers)
  message(FATAL_ERROR "objc/objc.h was not found: install clang-16 (tools/setup.sh test does)")
endif()
list(GET objc_headers -1 objc_header)
get_filename_component(objc_folder "${objc_header}" DIRECTORY)
get_filename_component(HEDDLE_OBJC_INCLUDE "${objc_folder}" DIRECTORY)
get_filename_component(HEDDLE_OBJC_LIBRARIES "${HEDDLE_OBJC_INCLUDE}" DIRECTORY)

set(double_folder "${PROJECT_SOURCE_DIR}/tests/metal_double")
set(objcxx_flags -fobjc-runtime=gcc -fobjc-exceptions -fblocks -fconstant-string-class=NSConstantString)
target_compile_options(heddle_metal_sdk INTERFACE
  "$<$<COMPILE_LANGUAGE:OBJCXX>:${objcxx_flags}>"
  "$<$<COMPILE_LANGUAGE:OBJCXX>:SHELL:-idirafter ${HEDDLE_OBJC_INCLUDE}>")
target_include_directories(heddle_metal_sdk INTERFACE "${double_folder}/include")

# Libraries of their own, as on macOS: the guard is preloaded and must find the same classes as the driver.
function(heddle_double_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;LINK")
  set(sources "")
  foreach(folder IN LISTS arg_FOLDERS)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/*.mm")
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.(cpp|mm)$")
  if(NOT sources)
    return()
  endif()
  heddle_unite_objcxx(${name} sources)
  set_source_files_properties(${sources} PROPERTIES LANGUAGE OBJCXX)  # C++ that uses blocks is among them
  add_library(${name} SHARED ${sources})
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET default OBJCXX_VISIBILITY_PRESET default
                        VISIBILITY_INLINES_HIDDEN OFF)
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src")
  # Like tests, it need not be fast.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_COMPILE_OPTIONS>" -Wall -Wextra -Wpedantic -Wshadow)
  target_include_directories(${name} PRIVATE
    "$<TARGET_PROPERTY:heddle_metal_sdk,INTERFACE_INCLUDE_DIRECTORIES>")
  target_link_libraries(${name} PUBLIC ${arg_LINK} Threads::Threads)
endfunction()

heddle_double_library(metal_foundation FOLDERS "${double_folder}/foundation")
heddle_double_library(metal_double FOLDERS "${double_folder}/metal" "${double_folder}/kernels"
                      LINK metal_foundation "$<LINK_ONLY:heddle_sim>")
heddle_double_library(metal_graph FOLDERS "${double_folder}/graph" LINK metal_double heddle_base)

# libobjc behind our library: some of its symbols are replaced by ours.
target_link_libraries(metal_foundation PUBLIC -L${HEDDLE_OBJC_LIBRARIES} -lobjc)
foreach(library metal_graph metal_double metal_foundation)
  if(TARGET ${library})
    target_link_libraries(heddle_metal_sdk INTERFACE ${library})
  endif()
endforeach()
