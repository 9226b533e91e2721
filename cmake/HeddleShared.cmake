# libheddle.so: the one library that programs, the command line and the Python package link, so that a process
# holds one registry of devices. Exports heddle.h's names only: everything is compiled with hidden visibility,
# and the version script keeps the standard library's templates out.
add_library(heddle_shared SHARED "${PROJECT_SOURCE_DIR}/cmake/libheddle.cpp")
add_library(heddle::heddle ALIAS heddle_shared)
set(script "${PROJECT_SOURCE_DIR}/cmake/libheddle.map")
target_link_libraries(heddle_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,heddle_api>")
if(APPLE)
  # Apple's linker takes no version script, and lets nothing undefined pass of its own accord.
  set(HEDDLE_ORIGIN "@loader_path")
else()
  target_link_options(heddle_shared PRIVATE "-Wl,--version-script=${script}")
  if(NOT HEDDLE_SANITIZE)  # its run time is in the program, or loaded before it
    target_link_options(heddle_shared PRIVATE -Wl,--no-undefined)
  endif()
  set(HEDDLE_ORIGIN "$ORIGIN")
endif()
target_include_directories(heddle_shared INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(heddle_shared INTERFACE cxx_std_20)
target_compile_definitions(heddle_shared INTERFACE ${HEDDLE_STANDARD_LIBRARY})
set_target_properties(heddle_shared PROPERTIES
  OUTPUT_NAME heddle EXPORT_NAME heddle LINK_DEPENDS "${script}"
  SOVERSION ${PROJECT_VERSION_MAJOR}
  INSTALL_RPATH "${HEDDLE_ORIGIN}")
