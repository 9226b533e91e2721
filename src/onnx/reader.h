// reader.h: an ONNX file becomes an ir::Graph, or a Status that says what is wrong with it.
//
//   What       Opsets kOldestOpset to kNewestOpset of ai.onnx, and functions the model brings along (they are
//              inlined). Older forms of an operator become the newest one's. Types and shapes are inferred
//              here; what the file claims of inner values is not read.
//   Inputs     dim_param "batch" becomes the symbol "batch"; a dimension without a name becomes
//              "<input>_dim<i>"; an input without a shape is refused. An input that also has an initializer
//              is a constant.
//   Hostile    Bytes may be anything. Sizes are checked before memory is taken; nothing is half loaded.
//              External data must lie, symbolic links followed, in the folder of the model.
//   Lifetime   Small weights are copied. Large ones keep the file's bytes (external data: the mapped file)
//              alive through their Tensor.
//   Threads    Any; no state between calls. Blocks for reading the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace heddle::onnx {

inline constexpr int64_t kOldestOpset = 7;
inline constexpr int64_t kNewestOpset = 28;

struct Limits {
  uint64_t file_bytes = (uint64_t{1} << 31) - 1;  // protobuf reads no more; weights beyond that are external
  uint64_t tensor_bytes = uint64_t{1} << 36;      // one tensor
  uint64_t records = uint64_t{1} << 22;           // nodes, attributes, tensors, values the file may declare
  uint64_t nodes = uint64_t{1} << 18;             // after functions are inlined
  uint64_t attribute_elements = uint64_t{1} << 20;  // numbers in one list, characters in one string
  int nesting = 32;                                 // functions that call functions
};

// External data is looked for beside the file.
Result<ir::Graph> read_file(const std::string& path, const Limits& limits = {});
// A model in memory. Without a folder, external data is refused.
Result<ir::Graph> read_bytes(std::span<const std::byte> bytes, const Limits& limits = {},
                             const std::string& external_folder = "");

std::vector<std::string_view> known_operators();  // the names of ai.onnx that can be read, sorted

}  // namespace heddle::onnx
