// cpu_operators.h: operators that PyTorch's own CPU kernels compute for the device: factorisations, Fourier
// transforms, special functions and the like, each by its name and counted.
//
//   What       A call waits for the work that its tensors still need. Where the host addresses the device's
//              memory, the kernel reads it without a copy, and in-place and out= forms write there; elsewhere
//              what it reads is copied to the host first, and what it wrote to the device after it
//              (host_tensors.h). Results are new tensors of the device, with the CPU's strides.
//   Errors     PyTorch's own, as the kernel raises them. Where tensors are copied, those of the device are
//              unchanged then.
//   Threads    Any; no lock.
//   Blocks     Until the tensors are ready, and copied, then as long as the kernel computes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::torch_backend {

struct Overload;

// One overload. Lives as long as the process.
class CpuOperator {
 public:
  explicit CpuOperator(std::string name) : name_(std::move(name)) {}
  void operator()(const c10::OperatorHandle& op, c10::Stack& stack);
  const std::string& name() const { return name_; }  // "aten::linalg_qr.out"
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  std::atomic<uint64_t> calls_{0};
};

// Operators without their overloads: all those with a CPU kernel belong to a name, in-place and out= ones,
// too. One with its overload has PyTorch's kernel for all devices, which works for its own only.
std::span<const std::string_view> cpu_operator_names();
std::span<const std::string_view> torchvision_names();  // PyTorch may know them later, or never
// Entries of the table whose calls with complex numbers run so: graphs have none.
bool is_complex_on_cpu(std::string_view base_name);
bool has_complex(const Overload& overload, c10::ArrayRef<c10::IValue> arguments);
// So, or as PyTorch's composition of other operators; NotImplementedError where there is neither.
void run_complex(const Overload& overload, c10::Stack& stack);

// Before threads call.
CpuOperator& add_cpu_operator(std::string name);
std::vector<std::pair<std::string, uint64_t>> cpu_operator_calls();  // of those that were called; sorted

}  // namespace heddle::torch_backend
