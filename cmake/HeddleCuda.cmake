# HEDDLE_CUDA: the CUDA driver, and its tests on tests/cuda_double (preset cuda). It needs nothing of NVIDIA's
#   to build (src/drivers/cuda/driver/driver_api.h). No name of Device yet.
# HEDDLE_NVCC: compiler of the kernels' image; empty: none, and a device on a real GPU says so.
option(HEDDLE_CUDA "Build the CUDA driver and its tests on the CUDA double" OFF)
set(HEDDLE_NVCC "" CACHE FILEPATH "nvcc of CUDA 12 or newer, for the kernels of device cuda; empty: none")
if(NOT HEDDLE_CUDA)
  return()
endif()
heddle_library(cuda FOLDER src/drivers/cuda LINK heddle_device)
if(NOT HEDDLE_NVCC)
  return()
endif()
# Code for each of these; GPUs between and beyond take the intermediate code of the first.
set(HEDDLE_CUDA_ARCHITECTURES "75;80;90" CACHE STRING "Compute capabilities, without the point")
set(image "${PROJECT_BINARY_DIR}/cuda_kernels.fatbin")
list(GET HEDDLE_CUDA_ARCHITECTURES 0 oldest)
set(targets "-gencode=arch=compute_${oldest},code=compute_${oldest}")
foreach(architecture IN LISTS HEDDLE_CUDA_ARCHITECTURES)
  list(APPEND targets "-gencode=arch=compute_${architecture},code=sm_${architecture}")
endforeach()
file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/drivers/cuda/kernels/*")
add_custom_command(OUTPUT "${image}"
  COMMAND "${HEDDLE_NVCC}" -std=c++20 --fmad=false -O3 -fatbin ${targets} "-I${PROJECT_SOURCE_DIR}/src"
          -o "${image}" "${PROJECT_SOURCE_DIR}/src/drivers/cuda/kernels/image.cu"
  DEPENDS ${kernels} COMMENT "kernels for ${HEDDLE_CUDA_ARCHITECTURES}" VERBATIM)
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/drivers/cuda/image.cpp" PROPERTIES
  COMPILE_DEFINITIONS "HEDDLE_CUDA_IMAGE=\"${image}\"" OBJECT_DEPENDS "${image}"
  SKIP_UNITY_BUILD_INCLUSION ON)
