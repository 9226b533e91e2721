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

file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/drivers/host/kernels/*.cpp")
list(FILTER kernels EXCLUDE REGEX "_(test|bench)\\.cpp$")
if(HEDDLE_SANITIZE)
  set(level -O2)
else()
  set(level -O3)
endif()
# Clang says where it does not vectorise a loop that asks for it: a matter of speed, which GCC's build is for.
set(quiet "")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(quiet ";-Wno-pass-failed")
endif()
if(kernels)
  set_source_files_properties(${kernels} PROPERTIES
    COMPILE_OPTIONS "${level};-fopenmp-simd;-fno-math-errno;-fno-trapping-math${quiet}")
endif()
