// graph_of_one.cpp: an overload's entry, asked for the nodes of one call.
#include "graph_of_one.h"

#include <algorithm>
#include <numeric>

#include "arguments.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

class Builder final : Call::NumberInputs {
 public:
  Builder(const Overload& overload, c10::ArrayRef<c10::IValue> arguments, const Dims& dims)
      : overload_(overload),
        arguments_(arguments.slice(0, overload.arguments)),
        dims_(dims),
        graph_(overload.op.schema().name()) {
    for (const c10::IValue& each : arguments_) note_doubles(each);
  }

  std::shared_ptr<const GraphOfOne> make(const std::optional<std::vector<at::Tensor>>& results,
                                         const Device& device) {
    std::vector<Type> types;
    for (const at::Tensor& each : results.value_or(std::vector<at::Tensor>())) types.push_back(type_of(each));
    Call call(overload_.entry->op, graph_, read_arguments(), types, default_float(), this);
    const Results values = overload_.entry->build(call);
    TORCH_INTERNAL_ASSERT(!results || values.size() >= results->size(), overload_.entry->op,
                          ": its entry has ", values.size(), " results");
    for (size_t i = 0; i < values.size() && (!results || i < results->size()); ++i) {
      const Value value = results ? call.cast(values[i], types[i].dtype) : values[i];
      TORCH_INTERNAL_ASSERT(!results || dims_.any_free() || call.shape(value) == types[i].shape,
                            overload_.entry->op, ": result ", i, " is ", graph_.type(value),
                            "; PyTorch says ", (*results)[i].sizes());
      graph_.output(value, "result" + std::to_string(i));
    }
    ModelOptions options;
    options.device = device;
    options.coalesce = false;
    return std::make_shared<const GraphOfOne>(GraphOfOne{graph_.build(options), std::move(sources_)});
  }

 private:
  Type type_of(const at::Tensor& result) const {
    Type type{to_heddle(result.scalar_type()), {}};
    for (const int64_t extent : result.sizes())
      type.shape.push_back(dims_.any_free() && extent > 1 ? std::nullopt : std::optional(extent));
    return type;
  }

  void note_doubles(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined())
      doubles_ |= value.toTensor().scalar_type() == c10::ScalarType::Double && value.toTensor().dim() > 0;
  }

  std::vector<Argument> read_arguments() {
    std::vector<Argument> read;
    const auto& declared = overload_.op.schema().arguments();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      reading_ = static_cast<int>(i);
      const bool list = arguments_[i].isTensorList() || arguments_[i].isOptionalTensorList();
      element_ = list ? 0 : -1;
      Argument argument = to_argument(arguments_[i], *declared[i].real_type(),
                                      [&](const at::Tensor& tensor) { return input_of(tensor); });
      if (auto* number = std::get_if<Number>(&argument)) keep_only_known(*number);
      read.push_back(std::move(argument));
    }
    return read;
  }

  void keep_only_known(Number& number) const {
    const bool varies = overload_.entry->numbers == Numbers::varying;
    if (varies && number.known && !is_known(*number.known)) number.known.reset();
  }

  TensorArgument input_of(const at::Tensor& tensor) {
    const int element = element_ < 0 ? -1 : element_++;
    const Form form = form_of(tensor);
    const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (form == Form::number) {
      DType dtype = to_heddle(tensor.scalar_type());
      if (wrapped && dtype == DType::f64 && !doubles_) dtype = wide(default_float());
      return {add_input({reading_, element, dtype, form}, dtype, {}), wrapped};
    }
    const DType dtype = to_heddle(tensor.scalar_type());
    std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
    std::iota(order.begin(), order.end(), 0);
    if (form == Form::permuted) {
      const Axes axes = memory_order(tensor);
      order.assign(axes.begin(), axes.end());
    }
    std::vector<GraphBuilder::DimArgument> shape;
    for (const int64_t axis : order) shape.push_back(dims_[read_ + static_cast<size_t>(axis)]);
    read_ += order.size();
    const Value dense = add_input({reading_, element, {}, form}, dtype, shape);
    if (form == Form::as_it_is) return {dense};
    std::vector<int64_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return {graph_.add("Transpose", {dense}, {{"perm", back}})};
  }

  Value input(int argument, DType dtype) override {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const Source& source = sources_[i];
      if (source.argument == argument && source.number == dtype && source.form != Form::number)
        return inputs_[i];
    }
    return add_input({argument, -1, dtype}, dtype, {});
  }

  Value add_input(const Source& source, DType dtype, const std::vector<GraphBuilder::DimArgument>& shape) {
    sources_.push_back(source);
    inputs_.push_back(graph_.input("input" + std::to_string(inputs_.size()), dtype, shape));
    return inputs_.back();
  }

  const Overload& overload_;
  const c10::ArrayRef<c10::IValue> arguments_;
  const Dims& dims_;
  GraphBuilder graph_;
  std::vector<Source> sources_;
  std::vector<Value> inputs_;
  bool doubles_ = false;
  int reading_ = 0, element_ = -1;
  size_t read_ = 0;  // extents of the tensors before
};

}  // namespace

std::shared_ptr<const GraphOfOne> graph_of_one(const Overload& overload, c10::ArrayRef<c10::IValue> arguments,
                                               const Dims& dims,
                                               const std::optional<std::vector<at::Tensor>>& results,
                                               const Device& device) {
  return Builder(overload, arguments, dims).make(results, device);
}

}  // namespace heddle::torch_backend
