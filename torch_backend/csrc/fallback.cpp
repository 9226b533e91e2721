// fallback.cpp: the CPU's way, counted.
#include "fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>

namespace heddle::torch_backend {
namespace {

struct Fallbacks {
  std::atomic<bool> allowed{false};
  std::mutex lock;
  std::map<std::string, uint64_t> counts;
};
Fallbacks& fallbacks() {
  static Fallbacks& all = *new Fallbacks;
  return all;
}

void without_kernel(const c10::OperatorHandle& op, c10::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallbacks().allowed.load(std::memory_order_relaxed), name,
      " is not implemented on device heddle. Run this part on the CPU (tensor.cpu()), or let all such "
      "operators run there, counted: torch.heddle.allow_cpu_fallback(True)");
  {
    const std::lock_guard lock(fallbacks().lock);
    ++fallbacks().counts[name];
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

void allow_cpu_fallback(bool on) { fallbacks().allowed.store(on, std::memory_order_relaxed); }

std::vector<std::pair<std::string, uint64_t>> cpu_fallbacks() {
  const std::lock_guard lock(fallbacks().lock);
  return {fallbacks().counts.begin(), fallbacks().counts.end()};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&without_kernel>());
}

}  // namespace heddle::torch_backend
