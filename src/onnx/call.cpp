#include "onnx/call.h"

#include <utility>

namespace heddle::onnx {

Call::Call(Site site, std::vector<ir::ValueId> inputs, ir::Attributes attributes, ir::Builder& builder)
    : site_(std::move(site)),
      inputs_(std::move(inputs)),
      attributes_(std::move(attributes)),
      builder_(builder),
      bound_(site_.outputs, ir::kNoValue) {
  while (!inputs_.empty() && inputs_.back() == ir::kNoValue) inputs_.pop_back();
}

std::string Call::describe() const { return text("node '", site_.name, "' (", site_.op, ")"); }

Result<ir::ValueId> Call::required(size_t i) const {
  if (!has(i)) return invalid("input ", i, " is missing");
  return inputs_[i];
}

Result<ir::TensorType> Call::type(size_t i) const {
  HEDDLE_TRY_ASSIGN(const ir::ValueId id, required(i));
  return value(id).type;
}

template <class T>
Result<std::optional<T>> Call::take(std::string_view name, std::string_view kind) {
  const ir::Attribute* found = attributes_.find(name);
  if (found == nullptr) return std::optional<T>();
  const T* held = std::get_if<T>(found);
  if (held == nullptr) return invalid("attribute '", name, "' is of the wrong kind; it must be ", kind);
  std::optional<T> value(*held);
  attributes_.erase(name);
  return value;
}

Result<int64_t> Call::take_i64(std::string_view name, int64_t otherwise) {
  HEDDLE_TRY_ASSIGN(const auto value, take<int64_t>(name, "an integer"));
  return value.value_or(otherwise);
}

Result<double> Call::take_f64(std::string_view name, double otherwise) {
  HEDDLE_TRY_ASSIGN(const auto value, take<double>(name, "a float"));
  return value.value_or(otherwise);
}

Result<std::string> Call::take_str(std::string_view name, std::string_view otherwise) {
  HEDDLE_TRY_ASSIGN(const auto value, take<std::string>(name, "a string"));
  return value.value_or(std::string(otherwise));
}

Result<std::optional<std::vector<int64_t>>> Call::take_ints(std::string_view name) {
  return take<std::vector<int64_t>>(name, "a list of integers");
}

ir::ValueId Call::constant(ir::Tensor tensor, std::string_view purpose) {
  return builder_.constant(std::move(tensor), text(site_.name, "/", purpose));
}

ir::ValueId Call::scalar(ir::DType dtype, double value, std::string_view purpose) {
  return constant(ir::Tensor::scalar(dtype, value), purpose);
}

Result<ir::ValueId> Call::add(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                              std::string_view purpose) {
  return builder_.node(op, std::move(inputs), std::move(attributes), text(site_.name, "/", purpose));
}

Result<ir::ValueId> Call::cast(ir::ValueId id, ir::DType dtype, std::string_view purpose) {
  if (value(id).type.dtype == dtype) return id;
  return add("Cast", {id}, {{"to", std::string(ir::name(dtype))}}, purpose);
}

Status Call::emit(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attributes attributes,
                  size_t outputs) {
  HEDDLE_TRY_ASSIGN(const auto made,
                    builder_.nodes(op, std::move(inputs), outputs, std::move(attributes), site_.name));
  for (size_t i = 0; i < made.size(); ++i) bind(i, made[i]);
  return {};
}

void Call::bind(size_t output, ir::ValueId id) {
  if (output < bound_.size()) bound_[output] = id;
}

}  // namespace heddle::onnx
