# The ONNX reader: the only target that sees protobuf. onnx.proto comes from the installed onnx package and is
# compiled here; nothing generated or vendored lies in the tree. The schema asks for the lite runtime, which
# keeps no process-wide table of message types: other copies of ONNX in the process cannot collide with ours.
# Debian's libprotobuf-lite.a is not position independent, so the shared library is used and installed beside
# ours.
find_program(HEDDLE_PROTOC protoc)
find_library(HEDDLE_PROTOBUF_LITE protobuf-lite)
find_path(HEDDLE_PROTOBUF_INCLUDE google/protobuf/message_lite.h)
set(protobuf "${HEDDLE_PROTOBUF_LITE}")
if(APPLE)
  # Homebrew's is newer and stands on Abseil, which its target names.
  find_package(protobuf CONFIG REQUIRED)
  set(protobuf protobuf::libprotobuf-lite)
endif()
if(NOT HEDDLE_PROTOC OR NOT HEDDLE_PROTOBUF_LITE OR NOT HEDDLE_PROTOBUF_INCLUDE)
  message(FATAL_ERROR "protobuf was not found: install protobuf-compiler and libprotobuf-dev.")
endif()
heddle_python_file(schema onnx onnx/onnx.proto)
if(NOT schema)
  message(FATAL_ERROR "onnx.proto was not found: install the Python package onnx for ${HEDDLE_PYTHON}, "
                      "or set HEDDLE_PYTHON to an interpreter that has it.")
endif()
get_filename_component(schema_folder "${schema}" DIRECTORY)
set(generated "${PROJECT_BINARY_DIR}/generated/onnx_proto")
file(MAKE_DIRECTORY "${generated}")
configure_file("${schema}" "${generated}/onnx.proto" COPYONLY)
add_custom_command(
  OUTPUT "${generated}/onnx.pb.cc" "${generated}/onnx.pb.h"
  COMMAND ${HEDDLE_PROTOC} --cpp_out=${generated} --proto_path=${generated} onnx.proto
  DEPENDS "${generated}/onnx.proto" COMMENT "Compiling onnx.proto" VERBATIM)

add_library(heddle_onnx_proto STATIC "${generated}/onnx.pb.cc" "${generated}/onnx.pb.h")
target_compile_options(heddle_onnx_proto PRIVATE -w)
heddle_unoptimised(heddle_onnx_proto)
heddle_fuzzed(heddle_onnx_proto)
target_include_directories(heddle_onnx_proto SYSTEM PUBLIC "${generated}" "${HEDDLE_PROTOBUF_INCLUDE}")
target_link_libraries(heddle_onnx_proto PUBLIC "${protobuf}" Threads::Threads)

heddle_library(onnx FOLDER src/onnx LINK heddle_ir heddle_onnx_proto)
