# 64-bit Arm on Linux, cross-compiled by Debian's g++-aarch64-linux-gnu; its programs run under qemu-user.
# HEDDLE_AARCH64_ROOT: the folder with oneDNN 3 for that machine and the C and C++ run time that oneDNN asks
# for (tools/setup.sh long lays it out in build/aarch64-root).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(HEDDLE_AARCH64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" CACHE PATH "Target's libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HEDDLE_AARCH64_ROOT)

get_filename_component(root "${HEDDLE_AARCH64_ROOT}" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH "${root}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES "${root}/usr/include")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# oneDNN may ask for a newer C and C++ run time than the cross compiler's; the root, which programs run with,
# has it.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--allow-shlib-undefined)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${root}")
