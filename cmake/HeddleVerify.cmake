# verify_headers: every header compiles alone. A syntax check, in no build by default, of the headers that no
# source of their own reads before anything else: of the others the stage compilers shows it. That every
# source passes Clang's thread-safety analysis is shown by the builds with Clang, the presets asan and tsan.

# Whether x.cpp or x.mm beside x.h begins with it.
function(heddle_shown_by_its_source header result)
  set(${result} FALSE PARENT_SCOPE)
  string(REGEX REPLACE "\\.h$" "" stem "${header}")
  foreach(source IN ITEMS "${stem}.cpp" "${stem}.mm")
    if(EXISTS "${source}")
      file(STRINGS "${source}" first REGEX "^#(include|import)" LIMIT_COUNT 1)
      get_filename_component(name "${header}" NAME)
      if(first MATCHES "/${name}\"$")
        set(${result} TRUE PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

function(heddle_verify target extension)
  get_property(folders GLOBAL PROPERTY HEDDLE_FOLDERS)
  set(files "")
  foreach(folder IN LISTS folders ITEMS "${PROJECT_SOURCE_DIR}/include")
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.${extension}")
    list(APPEND files ${found})
  endforeach()
  list(REMOVE_DUPLICATES files)
  list(FILTER files EXCLUDE REGEX "_(test|bench)\\.cpp$")
  list(FILTER files EXCLUDE REGEX "/drivers/metal/")  # Objective-C++: the stage metal_apple parses it
  set(stamps "")
  set(includes "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/src" "-I${PROJECT_SOURCE_DIR}/include")
  if(TARGET heddle_onnx_proto)
    list(APPEND includes -isystem "${PROJECT_BINARY_DIR}/generated/onnx_proto")
  endif()
  if(OneDNN_INCLUDE_DIR)
    list(APPEND includes -isystem "${OneDNN_INCLUDE_DIR}")
  endif()
  foreach(file IN LISTS files)
    heddle_shown_by_its_source("${file}" shown)
    if(shown)
      continue()
    endif()
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${file}")
    set(stamp "${PROJECT_BINARY_DIR}/${target}/${name}.ok")
    get_filename_component(folder "${stamp}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(OUTPUT "${stamp}"
      COMMAND ${ARGN} -std=c++20 -fsyntax-only -fopenmp-simd "-DHEDDLE_VERSION=\"${PROJECT_VERSION}\""
              -x c++
              ${includes}
              -include "${file}" /dev/null -MD -MF "${stamp}.d" -MT "${stamp}"
      COMMAND ${CMAKE_COMMAND} -E touch "${stamp}"
      DEPENDS "${file}" DEPFILE "${stamp}.d" COMMENT "Checking ${name}" COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND stamps "${stamp}")
  endforeach()
  add_custom_target(${target} DEPENDS ${stamps})
  if(TARGET heddle_onnx_proto)
    add_dependencies(${target} heddle_onnx_proto)
  endif()
endfunction()

heddle_verify(verify_headers h ${CMAKE_CXX_COMPILER} -Wall -Wextra -Werror)
