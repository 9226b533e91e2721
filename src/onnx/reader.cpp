#include "onnx/reader.h"

#include <filesystem>
#include <limits>

#include "onnx/external_data.h"
#include "onnx/graph_reader.h"
#include "onnx/mapped_file.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "onnx/proto.h"
#include "onnx/record_count.h"

namespace heddle::onnx {
namespace {

Status parse(std::span<const std::byte> bytes, const Limits& limits, proto::ModelProto& model) {
  if (bytes.empty()) return Status::invalid("the model is empty; it must be an ONNX model");
  if (bytes.size() > limits.file_bytes || bytes.size() > std::numeric_limits<int>::max()) {
    return Status::invalid("the model has ", bytes.size(), " bytes; the limit is ", limits.file_bytes,
                           ", so save its weights as external data");
  }
  HEDDLE_TRY(check_records(bytes, limits.records));
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Status::invalid(
        "it cannot be parsed as an ONNX model; the file is cut short, damaged, or something else");
  }
  if (model.ir_version() <= 0) return Status::invalid("it has no ir_version; it is not an ONNX model");
  if (model.ir_version() > proto::IR_VERSION) {
    return Status::unsupported("IR version ", model.ir_version(),
                               " is not supported; Heddle was built with an onnx",
                               " package that knows up to ", static_cast<int>(proto::IR_VERSION));
  }
  if (model.opset_import_size() == 0)
    return Status::invalid("it imports no opset; opset_import must name ai.onnx");
  return {};
}

}  // namespace

Result<ir::Graph> read_bytes(std::span<const std::byte> bytes, const Limits& limits,
                             const std::string& external_folder) {
  proto::ModelProto model;
  HEDDLE_TRY(parse(bytes, limits, model));
  ExternalData external(external_folder);
  return GraphReader(model, limits, external).read();
}

Result<ir::Graph> read_file(const std::string& path, const Limits& limits) {
  HEDDLE_TRY_ASSIGN(const auto file, MappedFile::open(path));
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  auto graph = read_bytes(file->bytes(), limits, folder);
  if (!graph.ok()) return graph.status().with_context(in_quotes(path));
  return graph;
}

std::vector<std::string_view> known_operators() {
  std::vector<std::string_view> names;
  for (const Operator* entry : all_operators()) names.push_back(entry->name);
  return names;
}

}  // namespace heddle::onnx
