# verify_headers: every header compiles alone. verify_threads: every source passes Clang's thread-safety
# analysis. Syntax checks only, in no build by default.
find_program(HEDDLE_CLANG NAMES clang++-16 clang++)
set(clang_flags -Wall -Wextra -Wthread-safety -Wthread-safety-beta -Werror)

function(heddle_verify target extension)
  get_property(folders GLOBAL PROPERTY HEDDLE_FOLDERS)
  set(files "")
  foreach(folder IN LISTS folders ITEMS "${PROJECT_SOURCE_DIR}/include")
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.${extension}")
    list(APPEND files ${found})
  endforeach()
  list(REMOVE_DUPLICATES files)
  list(FILTER files EXCLUDE REGEX "_(test|bench)\\.cpp$")
  set(stamps "")
  set(includes "-I${PROJECT_SOURCE_DIR}/src" "-I${PROJECT_SOURCE_DIR}/include")
  if(TARGET heddle_onnx_proto)
    list(APPEND includes -isystem "${PROJECT_BINARY_DIR}/generated/onnx_proto")
  endif()
  if(OneDNN_INCLUDE_DIR)
    list(APPEND includes -isystem "${OneDNN_INCLUDE_DIR}")
  endif()
  foreach(file IN LISTS files)
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
if(HEDDLE_CLANG)
  # Clang cannot read GCC's omp.h; for the analysis the declarations are enough.
  file(WRITE "${PROJECT_BINARY_DIR}/verify_threads/omp/omp.h" "#pragma once
extern \"C\" { int omp_get_max_threads(); void omp_set_num_threads(int); int omp_in_parallel();
int omp_get_num_threads(); int omp_get_thread_num(); int omp_get_dynamic(); void omp_set_dynamic(int);
int omp_get_max_active_levels(); void omp_set_max_active_levels(int); }
")
  heddle_verify(verify_threads cpp ${HEDDLE_CLANG} ${clang_flags}
                -isystem "${PROJECT_BINARY_DIR}/verify_threads/omp")
endif()
