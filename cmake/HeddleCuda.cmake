# HEDDLE_CUDA: the CUDA driver. It needs nothing of NVIDIA's to build (src/drivers/cuda/driver/driver_api.h).
#   OFF     there is no device cuda
#   ON      it is in libheddle.so, which looks for NVIDIA's driver when it is asked for the device
#   DOUBLE  the same, and tests on tests/cuda_double (presets cuda, tsan, asan)
# HEDDLE_NVCC: compiler of the kernels' image; empty: none, and the device says so.
if(APPLE OR HEDDLE_SIM)
  set(cuda_default OFF)
else()
  set(cuda_default ON)
endif()
set(HEDDLE_CUDA ${cuda_default} CACHE STRING "CUDA driver: OFF | ON | DOUBLE")
set_property(CACHE HEDDLE_CUDA PROPERTY STRINGS OFF ON DOUBLE)
if(NOT HEDDLE_CUDA MATCHES "^(OFF|ON|DOUBLE)$")
  message(FATAL_ERROR "HEDDLE_CUDA is '${HEDDLE_CUDA}'; it must be OFF, ON or DOUBLE")
endif()
set(HEDDLE_NVCC "" CACHE FILEPATH "nvcc of CUDA 12 or newer, for the kernels of device cuda; empty: none")

# What makes "cuda" a name of Device.
function(heddle_cuda_in_api)
  if(NOT TARGET heddle_cuda)
    return()
  endif()
  target_link_libraries(heddle_api PUBLIC heddle_cuda)
  set(drivers "${PROJECT_SOURCE_DIR}/src/api/process_devices.cpp")
  set_source_files_properties("${drivers}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_property(SOURCE "${drivers}" APPEND PROPERTY COMPILE_DEFINITIONS HEDDLE_CUDA=1)
endfunction()
if(HEDDLE_CUDA STREQUAL "OFF")
  return()
endif()
heddle_library(cuda FOLDER src/drivers/cuda LINK heddle_device)
# The text of headers, for sources that are compiled at run time.
set(kernels_folder "${PROJECT_SOURCE_DIR}/src/drivers/cuda/kernels")
file(GLOB kernel_texts CONFIGURE_DEPENDS "${kernels_folder}/*.h" "${kernels_folder}/*.inc")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/drivers/cuda/libraries/kernel_headers.cpp" PROPERTIES
  COMPILE_DEFINITIONS "HEDDLE_KERNELS=\"${kernels_folder}\"" OBJECT_DEPENDS "${kernel_texts}"
  SKIP_UNITY_BUILD_INCLUSION ON)
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
