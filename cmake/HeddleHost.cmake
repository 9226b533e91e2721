# The host driver: the only target that sees oneDNN. libgomp is linked for the caller's OpenMP setting, which
# is saved and restored around primitives; our own code is compiled without -fopenmp.
find_package(OneDNN REQUIRED)
heddle_library(host FOLDER src/drivers/host LINK heddle_device)
get_target_property(kind heddle_host TYPE)
if(kind STREQUAL "INTERFACE_LIBRARY")
  set(scope INTERFACE)
else()
  set(scope PUBLIC)
endif()
target_link_libraries(heddle_host ${scope} OneDNN::dnnl)
if(APPLE)
  # Homebrew's oneDNN is built without OpenMP.
  target_compile_definitions(heddle_host ${scope} HEDDLE_NO_OPENMP=1)
else()
  target_link_libraries(heddle_host ${scope} gomp)
endif()

# Kernels are loops that the compiler turns into vector instructions; what it may assume for that is true of
# the whole driver. Clang says where it does not vectorise a loop that asks for it: a matter of speed, which
# GCC's build is for.
if(kind STREQUAL "STATIC_LIBRARY")
  target_compile_options(heddle_host PRIVATE -fopenmp-simd -fno-math-errno -fno-trapping-math
                         $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>)
endif()
