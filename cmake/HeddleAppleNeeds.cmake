# What a Mac must have, said before the compiler says it in its own words. CMake reads it before project(),
# for the deployment target; as a script it judges answers that a test makes up (tools/apple_needs_test.py):
#   cmake -DHEDDLE_TARGET=14.0 -DHEDDLE_LIBCXX=190102 -DHEDDLE_WITH_TESTS=ON -P cmake/HeddleAppleNeeds.cmake
set(HEDDLE_MACOS_NEEDED 14.0)

# `target` is the deployment target; `libcxx` is _LIBCPP_VERSION, empty where the compiler has no libc++.
function(heddle_apple_needs target libcxx tests)
  if(target VERSION_LESS HEDDLE_MACOS_NEEDED)
    message(FATAL_ERROR "CMAKE_OSX_DEPLOYMENT_TARGET is '${target}': Heddle needs macOS "
      "${HEDDLE_MACOS_NEEDED} or newer. Leave it out, or set it to ${HEDDLE_MACOS_NEEDED}.")
  endif()
  set(needed 170000)
  set(xcode 15.4)
  set(for "std::stop_token")
  if(tests)
    set(needed 180000)
    set(xcode 16)
    set(for "std::jthread, which the tests use,")
  endif()
  if(NOT libcxx OR libcxx LESS needed)
    message(FATAL_ERROR "The compiler's C++ library is libc++ '${libcxx}': ${for} came with ${needed}. "
      "Install Xcode ${xcode} or newer, or its command line tools (xcode-select --install), and choose it "
      "(sudo xcode-select --switch).")
  endif()
endfunction()

# heddle_libcxx_version(compiler sysroot variable)
function(heddle_libcxx_version compiler sysroot variable)
  set(source "${CMAKE_BINARY_DIR}/libcxx_version.cpp")
  file(WRITE "${source}" "#include <version>\n")
  set(from "")
  if(sysroot)
    set(from -isysroot "${sysroot}")
  endif()
  execute_process(COMMAND "${compiler}" -std=c++20 ${from} -dM -E "${source}"
                  OUTPUT_VARIABLE macros ERROR_QUIET)
  string(REGEX MATCH "#define _LIBCPP_VERSION ([0-9]+)" found "${macros}")
  set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  if(HEDDLE_COMPILER)
    heddle_libcxx_version("${HEDDLE_COMPILER}" "${HEDDLE_SYSROOT}" HEDDLE_LIBCXX)
  endif()
  heddle_apple_needs("${HEDDLE_TARGET}" "${HEDDLE_LIBCXX}" "${HEDDLE_WITH_TESTS}")
  message("libc++ ${HEDDLE_LIBCXX} for macOS ${HEDDLE_TARGET} will do")
elseif(CMAKE_HOST_APPLE AND NOT DEFINED CMAKE_OSX_DEPLOYMENT_TARGET
       AND NOT DEFINED ENV{MACOSX_DEPLOYMENT_TARGET})
  # Before project(), which would take the version of the Mac that builds.
  set(CMAKE_OSX_DEPLOYMENT_TARGET ${HEDDLE_MACOS_NEEDED} CACHE STRING "The oldest macOS of the build")
endif()
