// eager.cpp: from a boxed call to a model and back.
#include "eager.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>

#include "activities.h"
#include "call_key.h"
#include "checks.h"
#include "cpu_operators.h"
#include "described.h"
#include "graph_of_one.h"
#include "layout.h"
#include "process_end.h"
#include "recent_calls.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

struct Result {
  std::vector<int64_t> sizes;
  c10::ScalarType type;
};

// What calls of the same key share.
struct Compiled {
  std::shared_ptr<const GraphOfOne> graph;     // null: every result is empty
  std::optional<std::vector<Result>> results;  // nothing: PyTorch does not say, or was not asked
};

// By a call's whole key. A long-running service sees a few hundred, with ragged shapes many more.
OnceCache& calls() {
  static OnceCache& made = *new OnceCache(16384);  // threads may outlive every static
  return made;
}

// By Dims::key(). A null graph: the operator's entry has to know the extents that are free in that key, or
// its results are empty.
struct Graph {
  std::shared_ptr<const GraphOfOne> of_one;
};
OnceCache& graphs() {
  static OnceCache& made = *new OnceCache(16384);
  return made;
}

// ---- making

// A list as the only result has as many tensors as the call makes of it.
bool returns_list(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 && schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
}

using Described = std::optional<std::vector<at::Tensor>>;

Described described_for_all(const Overload& overload, c10::ArrayRef<c10::IValue> arguments) {
  try {
    return described(overload, arguments);
  } catch (const c10::Error& error) {
    // An exception of PyTorch's is not for several threads: compiled_of() asks again for each.
    throw Error(ErrorCode::invalid, error.what_without_backtrace());
  }
}

bool are_empty(const Described& results) {
  return results && std::ranges::all_of(*results, [](const at::Tensor& each) { return each.numel() == 0; });
}

// `describe`: gives the results, and is asked where the graph is not there.
template <class Describe>
std::shared_ptr<const GraphOfOne> graph_with(const Dims& dims, const Overload& overload,
                                             c10::ArrayRef<c10::IValue> arguments, const Device& device,
                                             Describe describe) {
  const auto graph = std::static_pointer_cast<const Graph>(graphs().get_or_make(dims.key(), [&] {
    const Described results = describe();
    if (are_empty(results)) return std::make_shared<const Graph>();
    try {
      return std::make_shared<const Graph>(Graph{graph_of_one(overload, arguments, dims, results, device)});
    } catch (const Error& error) {
      const bool may_be_of_dims =
          error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid;
      if (!dims.any_free() || !may_be_of_dims) throw;
      return std::make_shared<const Graph>();
    }
  }));
  return graph->of_one;
}

std::shared_ptr<const Compiled> make(CallKey key, const Overload& overload,
                                     c10::ArrayRef<c10::IValue> arguments, const Device& device) {
  auto compiled = std::make_shared<Compiled>();
  const bool is_functional = overload.kind == Overload::Kind::functional;
  if (is_functional && is_checked_by_equality(overload.entry->op)) {
    const Dims dims = Dims::free(key);
    if (dims.any_free())
      compiled->graph = graph_with(dims, overload, arguments, device,
                                   [&] { return described_for_all(overload, arguments); });
    if (compiled->graph != nullptr) return compiled;
  }
  const Described results = described_for_all(overload, arguments);
  std::vector<int64_t> extents;
  if (results) {
    compiled->results.emplace();
    for (const at::Tensor& each : *results) {
      compiled->results->push_back({each.sizes().vec(), each.scalar_type()});
      extents.insert(extents.end(), each.sizes().begin(), each.sizes().end());
    }
  }
  if (are_empty(results)) return compiled;
  const auto known = [&] { return results; };
  compiled->graph = graph_with(Dims::free(key, extents), overload, arguments, device, known);
  if (compiled->graph == nullptr)
    compiled->graph = graph_with(Dims::fixed(key), overload, arguments, device, known);
  return compiled;
}

// Nothing is kept of a call that is refused.
std::shared_ptr<const Compiled> compiled_of(const CallKey& key, const Overload& overload,
                                            c10::ArrayRef<c10::IValue> arguments, const Device& device) {
  thread_local RecentCalls<Compiled> recent;
  return recent.find_or(key.whole, [&] {
    const auto make_it = [&] { return make(key, overload, arguments, device); };
    // By reference: it captures more than a std::function holds without the heap.
    return std::static_pointer_cast<const Compiled>(calls().get_or_make(key.whole, std::cref(make_it)));
  });
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
const at::Tensor& present(c10::ArrayRef<c10::IValue> list, int n) {
  const auto* const found = std::ranges::find_if(list, [&](const c10::IValue& each) {
    return each.isTensor() && each.toTensor().defined() && n-- == 0;
  });
  return found->toTensor();
}

// The operands of a call, as windows on the memory of their tensors: threads share weights, and what owned
// their memory would write its count of references.
class Operands {
 public:
  Operands(const std::vector<Source>& sources, c10::ArrayRef<c10::IValue> arguments, const Device& device)
      : count_(sources.size()) {
    windows_.reserve(count_);
    for (const Source& source : sources) add(source, arguments, device);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  std::span<const Model::Window> windows() const { return {windows_.data(), windows_.size()}; }

 private:
  struct Permuted {
    Axes sizes, strides;
  };

  void add(const Source& source, c10::ArrayRef<c10::IValue> arguments, const Device& device) {
    const c10::IValue& argument = arguments[static_cast<size_t>(source.argument)];
    if (source.number && source.form != Form::number)
      return add_made(number_tensor(argument.toScalar(), *source.number, device), {}, {});
    const at::Tensor& tensor =
        source.element < 0 ? argument.toTensor() : present(argument.toListRef(), source.element);
    if (source.form == Form::number)
      return add_made(number_tensor(value_of(tensor), *source.number, device), {}, {});
    if (source.form == Form::as_it_is) return add_tensor(tensor, tensor.sizes(), tensor.strides());
    if (permuted_.empty()) permuted_.reserve(count_);
    Permuted& turned = permuted_.emplace_back();
    for (const int64_t axis : memory_order(tensor)) {
      turned.sizes.push_back(tensor.size(axis));
      turned.strides.push_back(tensor.stride(axis));
    }
    add_tensor(tensor, turned.sizes, turned.strides);
  }

  void add_tensor(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    const Memory* const memory = tensor.device().type() == kType ? memory_of(tensor.storage()) : nullptr;
    if (memory == nullptr || tensor.numel() == 0) {
      const bool as_it_is = sizes.data() == tensor.sizes().data();
      return add_made(to_heddle(as_it_is ? tensor : tensor.permute(memory_order(tensor))), sizes, strides);
    }
    windows_.push_back({memory->bytes, to_heddle(tensor.scalar_type()), span_of(sizes), span_of(strides),
                        tensor.storage_offset() * static_cast<int64_t>(tensor.element_size())});
  }

  void add_made(Tensor tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    if (made_.empty()) made_.reserve(count_);
    made_.push_back(std::move(tensor));
    windows_.push_back({made_.back(), made_.back().dtype(), span_of(sizes), span_of(strides), 0});
  }

  static std::span<const int64_t> span_of(c10::IntArrayRef list) { return {list.data(), list.size()}; }

  const size_t count_;
  c10::SmallVector<Model::Window, 4> windows_;
  // What windows refer to: of a reserved size.
  std::vector<Tensor> made_;
  std::vector<Permuted> permuted_;
};

// The targets as memory for the run to write to, or nothing where one has another shape or is strided.
std::vector<Tensor> written_by_run(const Compiled& compiled, c10::ArrayRef<at::Tensor> targets) {
  std::vector<Tensor> outputs;
  if (!compiled.results || compiled.results->size() != targets.size()) return outputs;
  for (size_t i = 0; i < targets.size(); ++i) {
    const Result& result = (*compiled.results)[i];
    const bool fits = targets[i].sizes() == result.sizes && targets[i].scalar_type() == result.type;
    if (!fits || !targets[i].is_contiguous()) return {};
    outputs.push_back(to_heddle(targets[i]));
  }
  return outputs;
}

// The results; nothing where they are in the targets.
std::vector<at::Tensor> run(const Compiled& compiled, const Overload& overload,
                            c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> targets,
                            const Device& device, c10::DeviceIndex index) {
  std::vector<at::Tensor> results;
  if (compiled.graph == nullptr) {
    for (const Result& each : *compiled.results) results.push_back(empty(each.sizes, each.type, index));
    return results;
  }
  const Operands operands(compiled.graph->sources, arguments, device);
  const Activity activity(overload.entry->op, index);
  CallOptions options;
  options.stream = current_stream_of(index);
  options.keep_on_device = true;
  options.in_slices = true;
  options.outputs = written_by_run(compiled, targets);
  if (!options.outputs.empty()) {
    compiled.graph->model.call_windows(operands.windows(), options);
    return results;
  }
  for (Tensor& each : compiled.graph->model.call_windows(operands.windows(), options)) {
    const size_t i = results.size();
    results.push_back(to_torch(std::move(each), index));
    TORCH_INTERNAL_ASSERT(!compiled.results || results[i].sizes() == (*compiled.results)[i].sizes,
                          overload.entry->op, ": result ", i, " is of shape ", results[i].sizes(),
                          "; PyTorch says ", (*compiled.results)[i].sizes);
  }
  return results;
}

void put(const at::Tensor& result, const at::Tensor& to, c10::DeviceIndex index) {
  if (result.numel() == 0) return;
  const Activity activity("copy", index, Doing::copy);
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

// As PyTorch's resize_output(), and a target that was given its size lies as the result does.
bool resize_like(const at::Tensor& target, const at::Tensor& result) {
  if (!at::native::resize_output(target, result.sizes())) return false;
  if (!result.is_contiguous())
    target.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  return true;
}

}  // namespace

std::vector<at::Tensor> EagerKernel::results_of(c10::ArrayRef<c10::IValue> arguments,
                                                c10::ArrayRef<at::Tensor> targets, Place on,
                                                bool may_turn) const {
  thread_local CallKey key;
  key.clear();
  const Overload* self = &overload_;
  key.whole.append(reinterpret_cast<const char*>(&self), sizeof self);
  key.whole.push_back(static_cast<char>(on.index));
  append_arguments(key, numbers_, arguments, overload_.entry->numbers);
  check_overlap(overload_, targets, arguments, key.whole);
  key.end_kind();
  if (key.any_strided && overload_.is_elementwise && may_turn) {
    if (const std::optional<Axes> order = order_of_result(overload_, arguments, targets))
      return results_in(*order, arguments, targets, on);
  }
  try {
    return run(*compiled_of(key, overload_, arguments, on.device), overload_, arguments, targets, on.device,
               on.index);
  } catch (const Error&) {
    // A graph whose extents are free is there before anyone has asked whether these ones fit.
    described(overload_, arguments);  // raises PyTorch's own error, where it is PyTorch that refuses
    throw;
  }
}

std::vector<at::Tensor> EagerKernel::results_in(const Axes& order, c10::ArrayRef<c10::IValue> arguments,
                                                c10::ArrayRef<at::Tensor> targets, Place on) const {
  const auto turned = [&](const at::Tensor& tensor) { return in_order(tensor, order); };
  c10::SmallVector<c10::IValue, 8> its_arguments;
  for (const c10::IValue& each : arguments) its_arguments.push_back(mapped(each, turned));
  c10::SmallVector<at::Tensor, 2> its_targets;
  for (const at::Tensor& each : targets) its_targets.push_back(turned(each));
  std::vector<at::Tensor> results = results_of(its_arguments, its_targets, on, /*may_turn=*/false);
  for (const at::Tensor& each : results) undo_order(each, order);
  return results;
}

void EagerKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  // Most callers come without it. With it, a thread that waits for another's compilation would keep that one
  // from PyTorch's Meta kernels, many of which are written in Python.
  const FreeGil without_gil;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  if (overload_.prepare != nullptr) overload_.prepare(*stack);
  const auto arguments = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count, count);
  if (has_complex(overload_, arguments)) {
    run_complex(overload_, *stack);
    return;
  }
  const c10::DeviceIndex index = device_of(arguments);
  if (is_elsewhere(overload_, arguments, index)) {
    make_elsewhere(op, *stack);
    return;
  }
  check_devices(overload_, arguments, c10::Device(kType, index));
  if (overload_.check != nullptr) overload_.check(arguments);
  const std::vector<at::Tensor> targets = targets_of(overload_, arguments);
  const Device& device = device_at(index);
  const Writes writes(targets);
  std::vector<at::Tensor> results = translated(
      overload_, [&] { return results_of(arguments, targets, {device, index}, /*may_turn=*/true); });
  const bool is_functional = overload_.kind == Overload::Kind::functional;
  const size_t wanted = is_functional ? schema.returns().size() : targets.size();
  const bool is_written = !is_functional && results.empty();
  TORCH_INTERNAL_ASSERT(is_written || results.size() == wanted || (is_functional && returns_list(schema)),
                        overload_.entry->op, " has ", results.size(), " results, not ", wanted);
  if (is_functional) {
    torch::jit::drop(*stack, count);
    push_results(*stack, schema, std::move(results));
    return;
  }
  translated([&] {
    for (size_t i = 0; i < targets.size() && !is_written; ++i) {
      if (overload_.kind == Overload::Kind::out && resize_like(targets[i], results[i]))
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

EagerCacheStats eager_cache_stats() { return {calls().stats(), graphs().stats()}; }
void clear_eager_cache() {
  calls().clear();
  graphs().clear();
  forget_recent_calls();
  forget_kinds();
}

}  // namespace heddle::torch_backend
