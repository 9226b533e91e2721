#include "onnx/record_count.h"

#include <optional>

namespace heddle::onnx {
namespace {

constexpr int kDepth = 100;  // protobuf's own limit

enum class Kind : uint8_t {
  kModel,
  kGraph,
  kFunction,
  kNode,
  kAttribute,
  kTensor,
  kSparse,
  kValueInfo,
  kType,
  kTensorType,
  kShape,
  kTraining,
  kLeaf,  // text, or a message that holds none; not looked into
  kAny,   // everything in it that has a length is taken for a message
};

struct Child {
  Kind parent;
  uint32_t field;
  Kind kind;
};

// The fields of onnx.proto that hold messages or lists of texts.
constexpr Child kChildren[] = {
    {Kind::kModel, 7, Kind::kGraph},
    {Kind::kModel, 8, Kind::kLeaf},
    {Kind::kModel, 14, Kind::kLeaf},
    {Kind::kModel, 20, Kind::kTraining},
    {Kind::kModel, 25, Kind::kFunction},
    {Kind::kModel, 26, Kind::kAny},
    {Kind::kTraining, 1, Kind::kGraph},
    {Kind::kTraining, 2, Kind::kGraph},
    {Kind::kTraining, 3, Kind::kLeaf},
    {Kind::kTraining, 4, Kind::kLeaf},
    {Kind::kGraph, 1, Kind::kNode},
    {Kind::kGraph, 5, Kind::kTensor},
    {Kind::kGraph, 11, Kind::kValueInfo},
    {Kind::kGraph, 12, Kind::kValueInfo},
    {Kind::kGraph, 13, Kind::kValueInfo},
    {Kind::kGraph, 14, Kind::kAny},
    {Kind::kGraph, 15, Kind::kSparse},
    {Kind::kGraph, 16, Kind::kLeaf},
    {Kind::kFunction, 4, Kind::kLeaf},
    {Kind::kFunction, 5, Kind::kLeaf},
    {Kind::kFunction, 6, Kind::kLeaf},
    {Kind::kFunction, 7, Kind::kNode},
    {Kind::kFunction, 9, Kind::kLeaf},
    {Kind::kFunction, 11, Kind::kAttribute},
    {Kind::kFunction, 12, Kind::kValueInfo},
    {Kind::kFunction, 14, Kind::kLeaf},
    {Kind::kNode, 1, Kind::kLeaf},
    {Kind::kNode, 2, Kind::kLeaf},
    {Kind::kNode, 5, Kind::kAttribute},
    {Kind::kNode, 9, Kind::kLeaf},
    {Kind::kNode, 10, Kind::kAny},
    {Kind::kAttribute, 5, Kind::kTensor},
    {Kind::kAttribute, 6, Kind::kGraph},
    {Kind::kAttribute, 9, Kind::kLeaf},
    {Kind::kAttribute, 10, Kind::kTensor},
    {Kind::kAttribute, 11, Kind::kGraph},
    {Kind::kAttribute, 14, Kind::kType},
    {Kind::kAttribute, 15, Kind::kType},
    {Kind::kAttribute, 22, Kind::kSparse},
    {Kind::kAttribute, 23, Kind::kSparse},
    {Kind::kTensor, 6, Kind::kLeaf},
    {Kind::kTensor, 13, Kind::kLeaf},
    {Kind::kTensor, 16, Kind::kLeaf},
    {Kind::kSparse, 1, Kind::kTensor},
    {Kind::kSparse, 2, Kind::kTensor},
    {Kind::kValueInfo, 2, Kind::kType},
    {Kind::kValueInfo, 4, Kind::kLeaf},
    {Kind::kType, 1, Kind::kTensorType},
    {Kind::kType, 4, Kind::kAny},
    {Kind::kType, 5, Kind::kAny},
    {Kind::kType, 7, Kind::kLeaf},
    {Kind::kType, 8, Kind::kTensorType},
    {Kind::kType, 9, Kind::kAny},
    {Kind::kTensorType, 2, Kind::kShape},
    {Kind::kShape, 1, Kind::kLeaf},
};

std::optional<Kind> child_of(Kind parent, uint32_t field) {
  if (parent == Kind::kAny) return Kind::kAny;
  for (const Child& child : kChildren) {
    if (child.parent == parent && child.field == field) return child.kind;
  }
  return std::nullopt;
}

class Walker {
 public:
  explicit Walker(uint64_t limit) : limit_(limit) {}

  Status walk(std::span<const std::byte> bytes, Kind kind, int depth) {
    if (depth > kDepth)
      return Status::invalid("its parts nest more than ", kDepth, " deep; it is no ONNX model");
    while (!bytes.empty()) {
      const auto tag = varint(bytes);
      if (!tag) return damaged();
      const auto field = static_cast<uint32_t>(*tag >> 3);
      switch (*tag & 7) {
        case 0:
          if (!varint(bytes)) return damaged();
          break;
        case 1:
          if (!skip(bytes, 8)) return damaged();
          break;
        case 5:
          if (!skip(bytes, 4)) return damaged();
          break;
        case 2:
          HEDDLE_TRY(walk_length(bytes, kind, field, depth));
          break;
        default:
          return damaged();
      }
    }
    return {};
  }

 private:
  Status walk_length(std::span<const std::byte>& bytes, Kind kind, uint32_t field, int depth) {
    const auto size = varint(bytes);
    if (!size || *size > bytes.size()) return damaged();
    const auto inside = bytes.first(static_cast<size_t>(*size));
    bytes = bytes.subspan(static_cast<size_t>(*size));
    const auto child = child_of(kind, field);
    if (!child) return {};
    if (++records_ > limit_) {
      return Status::invalid("it declares more than ", limit_,
                             " nodes, attributes, tensors and values, which is the limit");
    }
    return *child == Kind::kLeaf ? Status() : walk(inside, *child, depth + 1);
  }

  static Status damaged() {
    return Status::invalid(
        "it cannot be parsed as an ONNX model; the file is cut short, damaged, or something else");
  }

  static bool skip(std::span<const std::byte>& bytes, size_t count) {
    if (bytes.size() < count) return false;
    bytes = bytes.subspan(count);
    return true;
  }

  static std::optional<uint64_t> varint(std::span<const std::byte>& bytes) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
      const auto byte = static_cast<uint64_t>(bytes.front());
      bytes = bytes.subspan(1);
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

  uint64_t limit_;
  uint64_t records_ = 0;
};

}  // namespace

Status check_records(std::span<const std::byte> bytes, uint64_t limit) {
  return Walker(limit).walk(bytes, Kind::kModel, 0);
}

}  // namespace heddle::onnx
