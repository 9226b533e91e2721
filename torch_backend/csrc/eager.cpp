// eager.cpp: from a boxed call to a model and back.
#include "eager.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "call_key.h"
#include "checks.h"
#include "process_end.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

// Where an input of the model comes from in a call.
struct Source {
  int argument;
  int element;                  // of a list; -1: the argument itself
  std::optional<DType> number;  // a number, passed as this
  Form form = Form::as_it_is;
};

struct Compiled {
  std::optional<Model> model;  // nothing: every result is empty
  std::vector<Source> sources;
  std::vector<std::pair<std::vector<int64_t>, c10::ScalarType>> results;
};

// One-operator models; a long-running service sees a few hundred, ragged shapes many more.
OnceCache& cache() {
  static OnceCache& made = *new OnceCache(16384);  // threads may outlive every static
  return made;
}

// ---- making

// What PyTorch's Meta kernel gets for the arguments. Where something is written to, strides count, and so
// does which input is a target as well: some kernels refuse such calls. A result is contiguous, whatever the
// strides of what it is made of.
class MetaArguments {
 public:
  explicit MetaArguments(Overload::Kind kind) : writes_(kind != Overload::Kind::functional) {}

  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor()) return meta(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(meta(each));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        list.push_back(each ? std::optional(meta(*each)) : std::nullopt);
      return list;
    }
    return value.isDevice() ? c10::IValue(c10::Device(c10::kMeta)) : value;
  }

 private:
  at::Tensor meta(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
    const auto options = tensor.options().device(c10::kMeta);
    if (!writes_) return at::empty(tensor.sizes(), options);
    for (const auto& [seen, its] : made_) {
      if (at::get_overlap_status(seen, tensor) == at::MemOverlapStatus::Full)
        return seen.scalar_type() == tensor.scalar_type() ? its : its.view(tensor.scalar_type());
    }
    made_.emplace_back(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), options));
    return made_.back().second;
  }

  const bool writes_;
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
};

// The operator whose Meta kernel tells the types: the convolution of devices like this one has none.
c10::OperatorHandle described_by(const Overload& overload) {
  if (overload.entry->op == "aten::convolution_overrideable")
    return c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  return overload.op;
}

// Without a Meta kernel, whatever the dispatcher says, or with one that tells other shapes than the CPU's
// kernels make. Their entries give the dtypes that are wanted.
constexpr std::string_view kOtherOnMeta[] = {"aten::native_batch_norm", "aten::_native_batch_norm_legit",
                                             "aten::_native_batch_norm_legit_no_training",
                                             "aten::_batch_norm_no_update", "aten::_thnn_fused_gru_cell"};

c10::Stack on_meta(const Overload& overload, c10::ArrayRef<c10::IValue> arguments) {
  c10::Stack stack;
  MetaArguments to_meta(overload.kind);
  for (const c10::IValue& each : arguments) stack.push_back(to_meta(each));
  return stack;
}

// Here stand the C++ shape functions of structured operators. For Meta, PyTorch prefers Python ones, which
// let some calls pass that its own devices refuse. out= overloads have none.
constexpr auto kStructured = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;

// Types of the results by PyTorch's Meta kernel; nothing where there is none, then the graph's are taken.
std::optional<std::vector<at::Tensor>> described(const Overload& overload,
                                                 c10::ArrayRef<c10::IValue> arguments) {
  const c10::OperatorHandle op = described_by(overload);
  if (std::ranges::find(kOtherOnMeta, overload.entry->op) != std::end(kOtherOnMeta)) return std::nullopt;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (overload.kind == Overload::Kind::out) {
    const auto functional = c10::Dispatcher::singleton().findSchema(name_of(overload.entry->op));
    c10::Stack stack = on_meta(overload, arguments.slice(0, overload.arguments));
    if (functional->hasKernelForDispatchKey(kStructured))
      functional->callBoxedForDispatchKey(kStructured, stack);
  }
  c10::Stack stack = on_meta(overload, arguments);
  const c10::Stack kept = stack;  // before PyTorch 2.13 results may be references to the arguments
  if (op.hasKernelForDispatchKey(kStructured)) {
    op.callBoxedForDispatchKey(kStructured, stack);
  } else {
    op.callBoxed(stack);
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& each : stack) {
    if (each.isTensorList()) {
      for (const at::Tensor& element : each.toTensorVector()) results.push_back(element);
    } else {
      results.push_back(each.toTensor());
    }
  }
  return results;
}

class GraphOfOne final : Call::NumberInputs {
 public:
  GraphOfOne(const Overload& overload, c10::ArrayRef<c10::IValue> arguments)
      : overload_(overload),
        arguments_(arguments.slice(0, overload.arguments)),
        graph_(overload.op.schema().name()) {
    for (const c10::IValue& each : arguments_) note_doubles(each);
  }

  std::shared_ptr<const Compiled> make(const std::optional<std::vector<at::Tensor>>& results,
                                       const Device& device) {
    std::vector<Type> types;
    for (const at::Tensor& each : results.value_or(std::vector<at::Tensor>())) {
      Type type{to_heddle(each.scalar_type()), {}};
      for (const int64_t extent : each.sizes()) type.shape.emplace_back(extent);
      types.push_back(std::move(type));
    }
    Call call(overload_.entry->op, graph_, read_arguments(), types, default_float(), this);
    const Results values = overload_.entry->build(call);
    TORCH_INTERNAL_ASSERT(!results || values.size() >= results->size(), overload_.entry->op,
                          ": its entry has ", values.size(), " results");
    for (size_t i = 0; i < values.size() && (!results || i < results->size()); ++i) {
      const Value value = results ? call.cast(values[i], types[i].dtype) : values[i];
      const Extents shape = call.shape(value);
      TORCH_INTERNAL_ASSERT(!results || shape == types[i].shape, overload_.entry->op, ": result ", i, " is ",
                            graph_.type(value), "; PyTorch says ", (*results)[i].sizes());
      graph_.output(value, "result" + std::to_string(i));
      std::vector<int64_t> sizes;
      for (const std::optional<int64_t>& extent : shape) sizes.push_back(extent.value());
      compiled_->results.emplace_back(std::move(sizes), to_torch(call.dtype(value)));
    }
    ModelOptions options;
    options.device = device;
    options.coalesce = false;
    compiled_->model = graph_.build(options);
    return compiled_;
  }

 private:
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
    if (form == Form::as_it_is) return {add_input({reading_, element, {}, form}, dtype, tensor.sizes())};
    const std::vector<int64_t> order = memory_order(tensor);
    std::vector<int64_t> sizes, back(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      sizes.push_back(tensor.size(order[i]));
      back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    }
    const Value dense = add_input({reading_, element, {}, form}, dtype, sizes);
    return {graph_.add("Transpose", {dense}, {{"perm", back}})};
  }

  Value input(int argument, DType dtype) override {
    for (size_t i = 0; i < compiled_->sources.size(); ++i) {
      const Source& source = compiled_->sources[i];
      if (source.argument == argument && source.number == dtype && source.form != Form::number)
        return inputs_[i];
    }
    return add_input({argument, -1, dtype}, dtype, {});
  }

  Value add_input(const Source& source, DType dtype, c10::IntArrayRef sizes) {
    std::vector<GraphBuilder::DimArgument> shape;
    for (const int64_t extent : sizes) shape.emplace_back(extent);
    compiled_->sources.push_back(source);
    inputs_.push_back(graph_.input("input" + std::to_string(inputs_.size()), dtype, shape));
    return inputs_.back();
  }

  const Overload& overload_;
  const c10::ArrayRef<c10::IValue> arguments_;
  GraphBuilder graph_;
  std::shared_ptr<Compiled> compiled_ = std::make_shared<Compiled>();
  std::vector<Value> inputs_;
  bool doubles_ = false;
  int reading_ = 0, element_ = -1;
};

// A list as the only result has as many tensors as the call makes of it.
bool returns_list(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
}

std::shared_ptr<const Compiled> make(const Overload& overload, c10::ArrayRef<c10::IValue> arguments,
                                     const Device& device) {
  std::optional<std::vector<at::Tensor>> results;
  try {
    results = described(overload, arguments);
  } catch (const c10::Error& error) {
    // An exception of PyTorch's is not for several threads: model_of() asks again for each.
    throw Error(ErrorCode::invalid, error.what_without_backtrace());
  }
  const auto is_empty = [](const at::Tensor& tensor) { return tensor.numel() == 0; };
  if (results && std::ranges::all_of(*results, is_empty)) {
    auto compiled = std::make_shared<Compiled>();
    for (const at::Tensor& each : *results)
      compiled->results.emplace_back(each.sizes().vec(), each.scalar_type());
    return compiled;
  }
  return GraphOfOne(overload, arguments).make(results, device);
}

// Nothing is kept of a call that is refused.
std::shared_ptr<const Compiled> model_of(const std::string& key, const Overload& overload,
                                         c10::ArrayRef<c10::IValue> arguments, const Device& device) {
  try {
    return std::static_pointer_cast<const Compiled>(
        cache().get_or_make(key, [&] { return make(overload, arguments, device); }));
  } catch (const Error&) {
    described(overload, arguments);  // raises PyTorch's own error, where it is PyTorch that refuses
    throw;
  }
}

// ---- running

// In memory that a call of the device can name, where the host can write there, too.
template <class T>
Tensor written(DType dtype, T value, const Device& device) {
  Tensor tensor = device.unified_memory() ? Tensor::empty(dtype, {}, device) : Tensor::zeros(dtype, {});
  *static_cast<T*>(tensor.mutable_data()) = value;
  return tensor;
}

Tensor number_tensor(const c10::Scalar& value, DType dtype, const Device& device) {
  switch (dtype) {
    case DType::f32:
      return written(dtype, value.to<float>(), device);
    case DType::f64:
      return written(dtype, value.to<double>(), device);
    case DType::boolean:
      return written(dtype, value.to<bool>(), device);
    case DType::i64:
      return written(dtype, value.to<int64_t>(), device);
    case DType::i32:
      return written(dtype, value.to<int32_t>(), device);
    case DType::i16:
      return written(dtype, value.to<int16_t>(), device);
    case DType::i8:
      return written(dtype, value.to<int8_t>(), device);
    case DType::u8:
      return written(dtype, value.to<uint8_t>(), device);
    case DType::f16:
      return written(dtype, value.to<c10::Half>(), device);
    case DType::bf16:
      return written(dtype, value.to<c10::BFloat16>(), device);
    case DType::u16:
    case DType::u32:
    case DType::u64:
      break;  // the device has no tensors of these
  }
  TORCH_INTERNAL_ASSERT(false, "a number of an unknown type");
}

c10::Scalar value_of(const at::Tensor& tensor) {  // of a CPU tensor without dimensions
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Bool:
      return *static_cast<const bool*>(data);
    case c10::ScalarType::Long:
      return *static_cast<const int64_t*>(data);
    case c10::ScalarType::Double:
      return *static_cast<const double*>(data);
    case c10::ScalarType::Float:
      return *static_cast<const float*>(data);
    default:
      return tensor.item();
  }
}

// The nth tensor of a list that may hold None: sources count those that are there.
c10::IValue present(c10::ArrayRef<c10::IValue> list, int n) {
  const auto* const found = std::ranges::find_if(list, [&](const c10::IValue& each) {
    return each.isTensor() && each.toTensor().defined() && n-- == 0;
  });
  return *found;
}

Tensor operand(const Source& source, c10::ArrayRef<c10::IValue> arguments, const Device& device) {
  const c10::IValue& argument = arguments[static_cast<size_t>(source.argument)];
  if (source.number && source.form != Form::number)
    return number_tensor(argument.toScalar(), *source.number, device);
  const c10::IValue element = source.element < 0 ? argument : present(argument.toListRef(), source.element);
  const at::Tensor& tensor = element.toTensor();
  if (source.form == Form::number) return number_tensor(value_of(tensor), *source.number, device);
  if (source.form == Form::permuted) return to_heddle(tensor.permute(memory_order(tensor)));
  return to_heddle(tensor);
}

std::vector<at::Tensor> run(const Compiled& compiled, c10::ArrayRef<c10::IValue> arguments,
                            const Device& device, c10::DeviceIndex index) {
  std::vector<at::Tensor> results;
  if (!compiled.model) {
    for (const auto& [sizes, type] : compiled.results) results.push_back(empty(sizes, type, index));
    return results;
  }
  std::vector<Tensor> inputs;
  inputs.reserve(compiled.sources.size());
  for (const Source& source : compiled.sources) inputs.push_back(operand(source, arguments, device));
  CallOptions options;
  options.stream = current_stream_of(index);
  options.keep_on_device = true;
  for (Tensor& each : (*compiled.model)(inputs, options)) results.push_back(to_torch(std::move(each), index));
  return results;
}

c10::DeviceIndex device_of(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined())
    return value.toTensor().device().type() == kType ? value.toTensor().device().index()
                                                     : c10::DeviceIndex{-1};
  if (value.isDevice()) return index_of(value.toDevice());
  if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (const c10::DeviceIndex index = device_of(each); index >= 0) return index;
    }
  }
  return -1;
}

c10::DeviceIndex device_of(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& each : arguments) {
    if (const c10::DeviceIndex index = device_of(each); index >= 0) return index;
  }
  return current_device();
}

void put(const at::Tensor& result, const at::Tensor& to, c10::DeviceIndex index) {
  if (result.numel() == 0) return;
  current_stream_of(index).copy(to_heddle(result), to_heddle(to));
}

// The tensors that a call writes to.
std::vector<at::Tensor> targets_of(const Overload& overload, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> targets;
  if (overload.kind == Overload::Kind::in_place) {
    targets.push_back(arguments[0].toTensor());
  } else if (overload.kind == Overload::Kind::out) {
    for (const c10::IValue& each : arguments.slice(overload.arguments)) {
      if (each.isTensorList()) {
        for (const at::Tensor& element : each.toTensorVector()) targets.push_back(element);
      } else {
        targets.push_back(each.toTensor());
      }
    }
  }
  return targets;
}

void push_results(c10::Stack& stack, const c10::FunctionSchema& schema, std::vector<at::Tensor> results) {
  if (returns_list(schema)) {
    stack.emplace_back(std::move(results));
    return;
  }
  for (at::Tensor& each : results) stack.emplace_back(std::move(each));
}

}  // namespace

void EagerKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  // Most callers come without it. With it, a thread that waits for another's compilation would keep that one
  // from PyTorch's Meta kernels, many of which are written in Python.
  const FreeGil without_gil;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  if (overload_.prepare != nullptr) overload_.prepare(*stack);
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count, count);
  const c10::DeviceIndex index = device_of(arguments);
  if (is_elsewhere(overload_, arguments, index)) {
    make_elsewhere(op, *stack);
    return;
  }
  check_devices(overload_, arguments, c10::Device(kType, index));
  if (overload_.check != nullptr) overload_.check(arguments);
  const std::vector<at::Tensor> targets = targets_of(overload_, arguments);
  const Device& device = device_at(index);
  std::vector<at::Tensor> results = translated(overload_, [&] {
    thread_local std::string key;
    key.clear();
    const Overload* self = &overload_;
    key.append(reinterpret_cast<const char*>(&self), sizeof self);
    key.push_back(static_cast<char>(index));
    append_key(key, schema, arguments, overload_.entry->numbers);
    check_overlap(overload_, targets, arguments, key);
    return run(*model_of(key, overload_, arguments, device), arguments, device, index);
  });
  const bool is_functional = overload_.kind == Overload::Kind::functional;
  const size_t wanted = is_functional ? schema.returns().size() : targets.size();
  TORCH_INTERNAL_ASSERT(results.size() == wanted || (is_functional && returns_list(schema)),
                        overload_.entry->op, " has ", results.size(), " results, not ", wanted);
  if (is_functional) {
    torch::jit::drop(*stack, count);
    push_results(*stack, schema, std::move(results));
    return;
  }
  translated([&] {
    for (size_t i = 0; i < targets.size(); ++i) {
      if (overload_.kind == Overload::Kind::out && at::native::resize_output(targets[i], results[i].sizes()))
        check_resized(overload_, targets[i], arguments);
      put(results[i], targets[i], index);
    }
  });
  torch::jit::drop(*stack, count);
  if (schema.returns().empty()) return;
  for (const at::Tensor& each : targets) stack->emplace_back(each);
}

c10::OperatorName name_of(std::string_view op) {
  const size_t dot = op.find('.');
  if (dot == std::string_view::npos) return {std::string(op), ""};
  return {std::string(op.substr(0, dot)), std::string(op.substr(dot + 1))};
}

at::Tensor cast(const at::Tensor& tensor, c10::ScalarType type) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
  static EagerKernel& kernel = *new EagerKernel(
      {find_entry("aten::_to_copy"), op, Overload::Kind::functional, op.schema().arguments().size()});
  c10::Stack stack{tensor, type};
  while (stack.size() < op.schema().arguments().size()) {
    const c10::Argument& left = op.schema().arguments()[stack.size()];
    stack.push_back(left.default_value().value_or(c10::IValue()));
  }
  kernel(op, {}, &stack);
  return stack.front().toTensor();
}

OnceCache::Stats eager_cache_stats() { return cache().stats(); }
void clear_eager_cache() { cache().clear(); }

}  // namespace heddle::torch_backend
