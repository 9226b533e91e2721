# What `cmake --install` and the wheel lay down: the one header, libheddle.so, the shared libraries it needs
# that are not part of every system (oneDNN, protobuf-lite) beside it, their licences, and
# find_package(heddle). libgomp, libstdc++ and libgcc_s are GCC's run time and come from the system (Debian:
# libgomp1, libstdc++6).
include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(library_folder heddle)
  set(license_folder heddle/licenses)
  set(component python)
else()
  set(library_folder "${CMAKE_INSTALL_LIBDIR}")
  set(license_folder "${CMAKE_INSTALL_DATAROOTDIR}/doc/heddle")
  set(component heddle)
  install(FILES include/heddle/heddle.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/heddle" COMPONENT heddle)
  set(export EXPORT heddle-targets)
endif()
if(SKBUILD)
  # A wheel holds no symbolic links: one file, named as the module asks for it.
  install(TARGETS heddle_shared
          LIBRARY DESTINATION "${library_folder}" COMPONENT ${component} NAMELINK_SKIP)
else()
  install(TARGETS heddle_shared ${export}
          LIBRARY DESTINATION "${library_folder}" COMPONENT ${component} NAMELINK_COMPONENT ${component})
endif()

option(HEDDLE_INSTALL_BESIDE "Install oneDNN and protobuf beside libheddle; OFF: for tools/wheel.py" ON)

# heddle_install_beside(file soname license): the real file behind a library's links, under the name the
# loader asks for.
function(heddle_install_beside file soname license)
  file(REAL_PATH "${file}" real)
  if(HEDDLE_INSTALL_BESIDE)
    install(FILES "${real}" RENAME "${soname}" DESTINATION "${library_folder}" COMPONENT ${component})
  endif()
  if(EXISTS "${license}")
    install(FILES "${license}" RENAME "${soname}.license.txt"
            DESTINATION "${license_folder}" COMPONENT ${component})
  else()
    message(WARNING "${soname} is installed without its licence text: '${license}' does not exist.")
  endif()
endfunction()

# Homebrew's libraries stay where they are: a Mac's programs name them by their whole path.
if(TARGET OneDNN::dnnl AND NOT APPLE)
  heddle_python_file(onednn_license onednn-cpu-gomp doc/onednn/LICENSE)
  if(NOT onednn_license)
    set(onednn_license /usr/share/doc/libdnnl3/copyright)
  endif()
  heddle_install_beside("${OneDNN_LIBRARY}" libdnnl.so.3 "${onednn_license}")
endif()
if(TARGET heddle_onnx_proto AND NOT APPLE)
  file(REAL_PATH "${HEDDLE_PROTOBUF_LITE}" real)
  string(REGEX MATCH "libprotobuf-lite\\.so\\.([0-9]+)" soname "${real}")
  heddle_install_beside("${real}" "${soname}" "/usr/share/doc/libprotobuf-lite${CMAKE_MATCH_1}/copyright")
endif()
if(NOT HEDDLE_INSTALL_BESIDE)
  # auditwheel puts libgomp into the wheel as well.
  install(FILES /usr/share/doc/libgomp1/copyright RENAME libgomp.so.1.license.txt
          DESTINATION "${license_folder}" COMPONENT ${component})
endif()
install(FILES LICENSE LICENSES.md DESTINATION "${license_folder}" COMPONENT ${component})

if(NOT SKBUILD)
  set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/heddle")
  install(EXPORT heddle-targets NAMESPACE heddle:: DESTINATION "${config_folder}" COMPONENT heddle)
  configure_package_config_file(cmake/heddle-config.cmake.in "${PROJECT_BINARY_DIR}/heddle-config.cmake"
                                INSTALL_DESTINATION "${config_folder}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/heddle-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/heddle-config.cmake"
                "${PROJECT_BINARY_DIR}/heddle-config-version.cmake"
          DESTINATION "${config_folder}" COMPONENT heddle)
endif()
