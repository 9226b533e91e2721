# OneDNN::dnnl, the major version 3 of oneDNN: from the Python packages onednn-cpu-gomp and onednn-devel-cpu-
# gomp of HEDDLE_PYTHON, unless for another machine; else from the system (CMAKE_PREFIX_PATH is respected).
# Also sets OneDNN_LIBRARY and OneDNN_VERSION.

if(NOT OneDNN_INCLUDE_DIR OR NOT OneDNN_LIBRARY)
  if(NOT CMAKE_CROSSCOMPILING)
    heddle_python_file(python_header onednn-devel-cpu-gomp include/dnnl.hpp)
    heddle_python_file(python_library onednn-cpu-gomp lib/libdnnl.so.3)
  endif()
  if(python_header AND python_library)
    get_filename_component(python_include "${python_header}" DIRECTORY)
    set(OneDNN_INCLUDE_DIR "${python_include}" CACHE PATH "Folder of dnnl.hpp" FORCE)
    set(OneDNN_LIBRARY "${python_library}" CACHE FILEPATH "libdnnl.so.3" FORCE)
  else()
    find_path(OneDNN_INCLUDE_DIR dnnl.hpp)
    find_library(OneDNN_LIBRARY NAMES libdnnl.so.3 dnnl)
  endif()
endif()

set(OneDNN_VERSION "")
foreach(file oneapi/dnnl/dnnl_version.h dnnl_version.h)
  if(OneDNN_INCLUDE_DIR AND EXISTS "${OneDNN_INCLUDE_DIR}/${file}" AND NOT OneDNN_VERSION)
    file(STRINGS "${OneDNN_INCLUDE_DIR}/${file}" lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." OneDNN_VERSION)
  endif()
endforeach()

set(wanted "install the Python packages onednn-cpu-gomp and onednn-devel-cpu-gomp 2023.2.0 \
for ${HEDDLE_PYTHON}, or a system oneDNN 3 (then set CMAKE_PREFIX_PATH)")
if(NOT OneDNN_INCLUDE_DIR OR NOT OneDNN_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: ${wanted}.")
elseif(NOT OneDNN_VERSION MATCHES "^3\\.")
  message(FATAL_ERROR
    "oneDNN in ${OneDNN_INCLUDE_DIR} has version '${OneDNN_VERSION}', Heddle needs 3.x: ${wanted}.")
endif()
if(NOT TARGET OneDNN::dnnl)
  message(STATUS "oneDNN ${OneDNN_VERSION}: ${OneDNN_LIBRARY}")
  add_library(OneDNN::dnnl SHARED IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}" IMPORTED_SONAME libdnnl.so.3
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
set(OneDNN_FOUND TRUE)
