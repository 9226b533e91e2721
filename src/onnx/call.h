// call.h: one ONNX node on its way into the graph.
//
//   What       What an operator's rule works with: operands as ids, attributes, the builder. A rule adds
//              canonical IR nodes and binds the outputs.
//   Names      Messages begin with the ONNX node. Nodes a rule adds on the side are named "<node>/<purpose>".
//   Threads    One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/builder.h"

namespace heddle::onnx {

class Call {
 public:
  struct Site {
    std::string name;
    std::string op;
    int64_t opset = 0;
    size_t outputs = 1;  // as many as the file lists, named or not
  };
  Call(Site site, std::vector<ir::ValueId> inputs, ir::Attributes attributes, ir::Builder& builder);

  const std::string& op() const { return site_.op; }
  int64_t opset() const { return site_.opset; }
  size_t output_count() const { return site_.outputs; }
  const std::vector<ir::ValueId>& inputs() const { return inputs_; }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != ir::kNoValue; }
  ir::ValueId input(size_t i) const { return has(i) ? inputs_[i] : ir::kNoValue; }
  // Operand i, which must be there. The second form gives its type.
  Result<ir::ValueId> required(size_t i) const;
  Result<ir::TensorType> type(size_t i) const;
  const ir::Value& value(ir::ValueId id) const { return builder_.value(id); }

  // What is left of the attributes when the rule has taken those it looks at; passed on to the IR node, which
  // refuses what it does not know.
  ir::Attributes& attributes() { return attributes_; }
  // Removes an attribute and returns it; `otherwise` when absent, invalid when it is of another kind.
  Result<int64_t> take_i64(std::string_view name, int64_t otherwise);
  Result<double> take_f64(std::string_view name, double otherwise);
  Result<std::string> take_str(std::string_view name, std::string_view otherwise);
  Result<std::optional<std::vector<int64_t>>> take_ints(std::string_view name);

  ir::ValueId constant(ir::Tensor tensor, std::string_view purpose);
  ir::ValueId scalar(ir::DType dtype, double value, std::string_view purpose);
  // A node on the side.
  Result<ir::ValueId> add(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                          std::string_view purpose);
  Result<ir::ValueId> cast(ir::ValueId id, ir::DType dtype,
                           std::string_view purpose);  // itself when it is so
  // The node that makes the first `outputs` outputs.
  Status emit(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
              size_t outputs = 1);
  void bind(size_t output, ir::ValueId id);
  const std::vector<ir::ValueId>& bound() const { return bound_; }  // kNoValue: not made

  template <class... Parts>
  Status invalid(Where first, const Parts&... rest) const {
    return Status::make(Code::invalid, text(describe(), ": ", first.message, rest...), first.place);
  }
  template <class... Parts>
  Status unsupported(Where first, const Parts&... rest) const {
    return Status::make(Code::unsupported, text(describe(), ": ", first.message, rest...), first.place);
  }
  std::string describe() const;

 private:
  template <class T>
  Result<std::optional<T>> take(std::string_view name, std::string_view kind);

  Site site_;
  std::vector<ir::ValueId> inputs_;
  ir::Attributes attributes_;
  ir::Builder& builder_;
  std::vector<ir::ValueId> bound_;
};

}  // namespace heddle::onnx
