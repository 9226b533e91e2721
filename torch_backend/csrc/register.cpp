// register.cpp: overloads by their schemas.
#include "register.h"

#include <torch/library.h>

#include <algorithm>
#include <unordered_map>

#include "checks.h"
#include "cpu_operators.h"
#include "eager.h"
#include "layout.h"
#include "masks.h"

namespace heddle::torch_backend {
namespace {

bool returns_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& each) {
    return each.alias_info() != nullptr && !each.alias_info()->isWrite();
  });
}

bool is_same(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.real_type() == *b.real_type();
}

std::vector<c10::Argument> without_outputs(const c10::FunctionSchema& schema) {
  std::vector<c10::Argument> left;
  for (const c10::Argument& each : schema.arguments()) {
    if (!each.is_out()) left.push_back(each);
  }
  return left;
}

std::string base_name(const std::string& name) {
  if (name.starts_with("aten::__i") && name.ends_with("shift__")) return "aten::__" + name.substr(9);  // <<=
  const bool in_place = name.ends_with('_') && !name.ends_with("__");
  return in_place ? name.substr(0, name.size() - 1) : name;
}

// The options of a new tensor, which out= overloads have no arguments for: arange(end, *, dtype, ..).
bool is_option(const c10::Argument& argument) {
  constexpr std::string_view kOptions[] = {"dtype", "layout", "device", "pin_memory"};
  return std::ranges::find(kOptions, argument.name()) != std::end(kOptions);
}

bool takes(const std::vector<c10::Argument>& arguments, const c10::FunctionSchema& schema) {
  const auto& declared = schema.arguments();
  if (arguments.size() > declared.size()) return false;
  const auto options = declared.begin() + static_cast<std::ptrdiff_t>(arguments.size());
  return std::equal(arguments.begin(), arguments.end(), declared.begin(), is_same) &&
         std::all_of(options, declared.end(), is_option);
}

// What `candidate` is to the functional `schema`; nothing when it is another operator.
std::optional<Overload::Kind> relation(const c10::FunctionSchema& schema,
                                       const c10::FunctionSchema& candidate) {
  const std::vector<c10::Argument> left = without_outputs(candidate);
  if (!takes(left, schema)) return std::nullopt;
  if (left.size() < candidate.arguments().size()) return Overload::Kind::out;
  if (left.size() < schema.arguments().size()) return std::nullopt;
  const auto written = std::ranges::count_if(left, is_written);
  if (written == 0) return std::nullopt;
  return written == 1 && is_written(left[0]) ? std::optional(Overload::Kind::in_place) : std::nullopt;
}

using OpsByBase = std::unordered_map<std::string, std::vector<c10::OperatorHandle>>;

OpsByBase ops_by_base() {
  OpsByBase ops;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    if (const auto op = dispatcher.findSchema(name)) ops[base_name(name.name)].push_back(*op);
  }
  return ops;
}

// Made of other operators by PyTorch; those of them that one entry does better as a whole, without gradients.
constexpr std::string_view kWhole[] = {
    "aten::linear",         "aten::layer_norm",    "aten::scaled_dot_product_attention",
    "aten::matmul",         "aten::max_pool1d",    "aten::max_pool2d",
    "aten::max_pool3d",     "aten::lstm.input",    "aten::gru.input",
    "aten::rnn_tanh.input", "aten::rnn_relu.input"};

// Operators of this package, which tracers put into graphs.
constexpr std::string_view kOurs = "heddle::";

// They move between devices and memory formats, too: PyTorch's own end in _copy_from. What PyTorch makes with
// _unsafe_view is a view, which kron(out=) writes through. Memory that leaves its elements open is PyTorch's
// to lay out over empty.memory_format and empty_strided: an entry would have the device fill it.
constexpr std::string_view kPyTorchs[] = {"aten::_to_copy",         "aten::clone",      "aten::copy",
                                          "aten::_unsafe_view",     "aten::empty_like", "aten::new_empty",
                                          "aten::new_empty_strided"};
bool is_pytorch_s(std::string_view op) { return std::ranges::find(kPyTorchs, op) != std::end(kPyTorchs); }

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// full(out=) and the like, which PyTorch makes of resize_() and a fill.
bool is_filled(const c10::OperatorHandle& out, const c10::FunctionSchema& functional) {
  return out.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         without_outputs(out.schema()).size() < functional.arguments().size();
}

// With gradients to record, PyTorch's own composition, whose parts know theirs.
class WholeUnlessGradients final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    if (std::ranges::any_of(arguments, is_followed)) {
      op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    } else {
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
  }

 private:
  // Backward, or forward with a tangent, which no_grad() does not end.
  static bool has_gradient(const at::Tensor& tensor) {
    if (!tensor.defined()) return false;
    return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined();
  }
  static bool is_followed(const c10::IValue& value) {
    if (value.isTensor()) return has_gradient(value.toTensor());
    return value.isTensorList() && std::ranges::any_of(value.toTensorVector(), has_gradient);
  }
};

// PyTorch's composition copies operands of batches that are no plain batches of matrices, as the heads of an
// attention are: each copy is work of its own. Other products it makes a single mm, mv or dot.
class MatmulOfBatches final : public c10::OperatorKernel {
 public:
  explicit MatmulOfBatches(Overload overload) : of_batches_(std::move(overload)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    const auto arguments = torch::jit::last(*stack, 2);
    if (std::ranges::all_of(arguments, is_batch)) {
      of_batches_(op, keys, stack);
    } else {
      op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    }
  }

 private:
  static bool is_batch(const c10::IValue& value) {
    return value.toTensor().dim() > 2 && !value.toTensor().is_complex();
  }
  EagerKernel of_batches_;
};

std::vector<std::string>& registered() {
  static std::vector<std::string> names;
  return names;
}

std::vector<std::string>& registered_on_cpu() {
  static std::vector<std::string> names;
  return names;
}

std::vector<std::string>& not_in_pytorch() {
  static std::vector<std::string> names;
  return names;
}

class OnCpu final : public c10::OperatorKernel {
 public:
  explicit OnCpu(CpuOperator& its) : its_(its) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    its_(op, *stack);
  }

 private:
  CpuOperator& its_;
};

class Registrar {
 public:
  void add_all() {
    for (const Entry& entry : table()) add(entry);
    for (const std::string_view name : cpu_operator_names()) add_on_cpu("aten::" + std::string(name));
    for (const std::string_view name : torchvision_names())
      implement_on_cpu(torchvision_, "torchvision::" + std::string(name));
    std::ranges::sort(registered());
    std::ranges::sort(not_in_pytorch());
  }

 private:
  void add(const Entry& entry) {
    if (entry.op.starts_with(kOurs)) return;
    const auto op = c10::Dispatcher::singleton().findSchema(name_of(entry.op));
    if (!op) {
      not_in_pytorch().emplace_back(entry.op);
      return;
    }
    if (returns_view(op->schema()) || is_pytorch_s(entry.op)) return;  // for traced graphs
    if (is_composite(*op)) {
      if (std::ranges::find(kWhole, entry.op) == std::end(kWhole)) return;
      autograd_.impl(std::string(entry.op.substr(6)).c_str(),
                     torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WholeUnlessGradients>()));
    }
    register_one({&entry, *op, Overload::Kind::functional, op->schema().arguments().size()});
    for (const c10::OperatorHandle& other : ops_[base_name(op->operator_name().name)]) {
      if (other.operator_name() == op->operator_name() || is_composite(other)) continue;
      const auto kind = relation(op->schema(), other.schema());
      if (kind && !is_filled(other, op->schema()))
        register_one({&entry, other, *kind, without_outputs(other.schema()).size()});
    }
  }

  void register_one(Overload overload) {
    if (overload.op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return;  // written by hand
    const std::string name = c10::toString(overload.op.operator_name());
    overload.prepare = preparation_for(name);
    add_checks(overload);
    overload.device_argument = overload.op.schema().argumentIndexWithName("device").value_or(-1);
    overload.layout_argument = overload.op.schema().argumentIndexWithName("layout").value_or(-1);
    overload.memory_format_argument =
        overload.op.schema().argumentIndexWithName("memory_format").value_or(-1);
    overload.is_elementwise = is_elementwise(overload.op, overload.entry->op, overload.kind);
    overload.dtype_argument = overload.op.schema().argumentIndexWithName("dtype").value_or(-1);
    if (is_complex_on_cpu(base_name(overload.op.schema().name()).substr(6)) &&
        overload.op.hasKernelForDispatchKey(c10::DispatchKey::CPU))
      overload.on_complex = &add_cpu_operator(name);
    registered().push_back(name);
    if (name == "aten::matmul") {
      implement<MatmulOfBatches>(name, std::move(overload));
    } else {
      implement<EagerKernel>(name, std::move(overload));
    }
  }

  template <class Kernel>
  void implement(const std::string& name, Overload overload) {
    plain_.impl(name.substr(6).c_str(),
                torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(std::move(overload))));
  }

  void add_on_cpu(const std::string& given) {
    const std::string base = name_of(given).name;
    if (!ops_.contains(base)) not_in_pytorch().push_back(given);
    for (const c10::OperatorHandle& op : ops_[base]) {
      const std::string name = c10::toString(op.operator_name());
      const bool is_meant = given == base
                                ? !is_composite(op) && op.hasKernelForDispatchKey(c10::DispatchKey::CPU)
                                : given == name;
      if (!is_meant || op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
      registered().push_back(name);
      registered_on_cpu().push_back(name);
      implement_on_cpu(plain_, name);
    }
  }

  static void implement_on_cpu(torch::Library& library, const std::string& name) {
    library.impl(name.substr(name.find("::") + 2).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OnCpu>(add_cpu_operator(name))));
  }

  OpsByBase ops_ = ops_by_base();
  torch::Library plain_{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__};
  torch::Library torchvision_{torch::Library::IMPL, "torchvision", c10::DispatchKey::PrivateUse1, __FILE__,
                              __LINE__};
  torch::Library autograd_{torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__,
                           __LINE__};
};

}  // namespace

void register_operators() {
  static Registrar& registrar = *[] {
    auto* made = new Registrar;  // as long as the process: kernels are called until its end
    made->add_all();
    return made;
  }();
  static_cast<void>(registrar);
}

std::vector<std::string> registered_overloads() { return registered(); }
std::vector<std::string> overloads_on_cpu() { return registered_on_cpu(); }
std::vector<std::string> unknown_overloads() { return not_in_pytorch(); }

}  // namespace heddle::torch_backend
