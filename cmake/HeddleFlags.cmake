# Language level, warnings and sanitizers: the same for every target of ours. Warnings are errors where
# CMAKE_COMPILE_WARNING_AS_ERROR says so: in the presets, and nowhere else of its own accord.

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  # Paths below the build folder count as relative ones: build folders share what was compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_BINARY_DIR}" "${HEDDLE_CCACHE}")
endif()

# Several sources of a target are compiled as one, which takes less than half of the compiler's time. Off in
# the preset dev, whose changes are small, and in the stages compilers and headers, which show that each
# source includes what it needs and each header compiles alone.
option(HEDDLE_UNITY "Compile up to twelve sources of a target as one" ON)
set(CMAKE_UNITY_BUILD ${HEDDLE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# heddle_unite_objcxx(name variable): the same for Objective-C++, which CMake does from 3.29 on. In the list
# `variable` files that include twelve *.mm each take their place.
function(heddle_unite_objcxx name variable)
  set(single ${${variable}})
  list(FILTER single INCLUDE REGEX "\\.mm$")
  if(NOT HEDDLE_UNITY OR NOT single)
    return()
  endif()
  set(all ${${variable}})
  list(REMOVE_ITEM all ${single})
  list(LENGTH single count)
  math(EXPR last "${count} - 1")
  foreach(first RANGE 0 ${last} ${CMAKE_UNITY_BUILD_BATCH_SIZE})
    list(SUBLIST single ${first} ${CMAKE_UNITY_BUILD_BATCH_SIZE} part)
    list(JOIN part "\"\n#include \"" content)
    set(united "${CMAKE_CURRENT_BINARY_DIR}/united/${name}_${first}.mm")
    file(CONFIGURE OUTPUT "${united}" CONTENT "#include \"${content}\"\n" @ONLY)
    list(APPEND all "${united}")
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# RelWithDebInfo is the development build: quick to compile, assertions and lock ranks on. The standard
# library checks indices, too, but not beside a sanitizer, whose build is slow.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
if(NOT HEDDLE_SANITIZE)
  string(APPEND CMAKE_CXX_FLAGS_RELWITHDEBINFO " -D_GLIBCXX_ASSERTIONS")
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

set(HEDDLE_WARNINGS
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
  -Wextra-semi -Wundef -Wvla -Wimplicit-fallthrough)
set(clang_warnings -Wshadow -Wthread-safety -Wthread-safety-beta)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND HEDDLE_WARNINGS ${clang_warnings})
  # std::stable_sort of GCC 12's library uses what that library calls deprecated, which Clang from 17 on
  # reports in its headers, too. The older compilers report our own uses.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17)
    list(APPEND HEDDLE_WARNINGS -Wno-deprecated-declarations)
  endif()
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Plain -Wshadow of GCC also objects to a parameter named like a member function. What follows it GCC 12
  # reports falsely for inlined std::string, std::vector and std::variant code at -O2 and above. Objective-C++
  # beside GCC is Clang's.
  set(gnu_warnings
    -Wshadow=local -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds
    -Wno-maybe-uninitialized -Wno-dangling-pointer -Wno-free-nonheap-object)
  if(HEDDLE_UNITY)  # GCC takes every file but the one that it was given for a header
    list(APPEND gnu_warnings -Wno-subobject-linkage)
  endif()
  if(HEDDLE_SANITIZE)
    list(APPEND gnu_warnings -Wno-tsan)
  endif()
  list(APPEND HEDDLE_WARNINGS "$<$<NOT:$<COMPILE_LANGUAGE:OBJCXX>>:${gnu_warnings}>"
       "$<$<COMPILE_LANGUAGE:OBJCXX>:${clang_warnings}>")
endif()

add_library(heddle_flags INTERFACE)
target_include_directories(heddle_flags INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
target_compile_options(heddle_flags INTERFACE ${HEDDLE_WARNINGS})
target_compile_definitions(heddle_flags INTERFACE HEDDLE_VERSION="${PROJECT_VERSION}")
if(HEDDLE_SIM)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    message(FATAL_ERROR "HEDDLE_SIM: its threads are handed over by Linux's futex")
  endif()
  target_compile_definitions(heddle_flags INTERFACE HEDDLE_SIM=1)
endif()

# libc++ before LLVM 20, and so Apple's, calls <stop_token> experimental; it is a header alone.
set(HEDDLE_STANDARD_LIBRARY "")
if(APPLE)
  set(HEDDLE_STANDARD_LIBRARY _LIBCPP_ENABLE_EXPERIMENTAL=1)
  target_compile_definitions(heddle_flags INTERFACE ${HEDDLE_STANDARD_LIBRARY})
endif()
if(CMAKE_CROSSCOMPILING_EMULATOR)
  target_compile_definitions(heddle_flags INTERFACE HEDDLE_EMULATED=1)
endif()

if(HEDDLE_SANITIZE)
  # As libraries are, so that one precompiled header serves both.
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)
  add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # What the address sanitizer finds as well, and what lies in the standard library, is not checked twice:
    # that would be a third of the compiler's time.
    add_compile_options(-fno-sanitize=null,object-size,vptr,function
                        "-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/tests/sanitizers/undefined.ignore")
  endif()
endif()
# libFuzzer is Clang's, and its targets of tests/fuzz want the address sanitizer beside them.
set(HEDDLE_FUZZ OFF)
if(HEDDLE_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND HEDDLE_API)
  set(HEDDLE_FUZZ ON)
endif()
# Which lines of the reader and of the API the fuzz targets reach (tools/fuzz_coverage.py). The rest is
# compiled as in the preset asan, and comes out of ccache.
option(HEDDLE_COVERAGE "Count the lines of src/onnx and src/api that run, beside the sanitizers" OFF)
set(HEDDLE_COVERED heddle_onnx heddle_api)
