#include "tests/cuda_double/faults.h"

#include <array>

#include "base/sync.h"
#include "tests/cuda_double/contexts.h"

namespace heddle::cuda_double {
namespace {

struct Refusal {
  int calls = 0, from = 0, until = 0;  // the calls from `from` on, below `until`, are refused
  cuda::Code code = cuda::kSuccess;
};
struct Faults {
  std::array<Refusal, static_cast<size_t>(Call::kCount)> of;
  std::array<cuda::Code, kMostDevices> lost{};  // by device
};
Guarded<Faults, Rank::kAllocator>& faults() {
  static auto* const all = new Guarded<Faults, Rank::kAllocator>();  // threads may outlive statics
  return *all;
}

}  // namespace

void refuse(Call call, cuda::Code code, int after, int times) {
  const auto all = faults().lock();
  Refusal& one = all->of[static_cast<size_t>(call)];
  one.from = one.calls + after;
  one.until = one.from + times;
  one.code = code;
}

void lose_context(cuda::Code code, int device) { faults().lock()->lost[static_cast<size_t>(device)] = code; }
bool is_context_lost(int device) {
  return faults().lock()->lost[static_cast<size_t>(device)] != cuda::kSuccess;
}
void forget_faults() { *faults().lock() = Faults(); }
int calls_of(Call call) { return faults().lock()->of[static_cast<size_t>(call)].calls; }

cuda::Code fails(Call call) {
  const auto all = faults().lock();
  Refusal& one = all->of[static_cast<size_t>(call)];
  const int number = one.calls++;
  const int device = device_of_thread();
  cuda::Code none = cuda::kSuccess;
  cuda::Code& lost = device == kNoDevice ? none : all->lost[static_cast<size_t>(device)];
  if (lost != cuda::kSuccess) return lost;
  if (number < one.from || number >= one.until) return cuda::kSuccess;
  if (cuda::loses_device(one.code)) lost = one.code;
  return one.code;
}

}  // namespace heddle::cuda_double
