# HEDDLE_PYTHON: the interpreter whose packages bring onnx.proto and oneDNN. In order: -DHEDDLE_PYTHON,
# $HEDDLE_PYTHON, the interpreter of a wheel build, .venv of this checkout, python3.
if(NOT HEDDLE_PYTHON)
  if(DEFINED ENV{HEDDLE_PYTHON})
    set(found "$ENV{HEDDLE_PYTHON}")
  elseif(SKBUILD AND Python_EXECUTABLE)
    set(found "${Python_EXECUTABLE}")
  elseif(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(found "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  else()
    find_program(found NAMES python3 REQUIRED NO_CACHE)
  endif()
  set(HEDDLE_PYTHON "${found}" CACHE FILEPATH "Interpreter whose packages bring onnx.proto and oneDNN" FORCE)
endif()

# heddle_python_file(var distribution suffix): the file of an installed distribution whose path ends in
# suffix, or an empty string. Reads metadata only, so that the package's code is not imported.
function(heddle_python_file var distribution suffix)
  execute_process(
    COMMAND "${HEDDLE_PYTHON}" "${PROJECT_SOURCE_DIR}/tools/find_file.py" "${distribution}" "${suffix}"
    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${var} "${path}" PARENT_SCOPE)
endfunction()
