#include "tests/cuda_double/faults.h"

#include <array>

#include "base/sync.h"

namespace heddle::cuda_double {
namespace {

struct Refusal {
  int calls = 0, from = 0, until = 0;  // the calls from `from` on, below `until`, are refused
  cuda::Code code = cuda::kSuccess;
};
struct Faults {
  std::array<Refusal, static_cast<size_t>(Call::kCount)> of;
  cuda::Code lost = cuda::kSuccess;
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

void lose_context(cuda::Code code) { faults().lock()->lost = code; }
bool is_context_lost() { return faults().lock()->lost != cuda::kSuccess; }
void forget_faults() { *faults().lock() = Faults(); }
int calls_of(Call call) { return faults().lock()->of[static_cast<size_t>(call)].calls; }

cuda::Code fails(Call call) {
  const auto all = faults().lock();
  Refusal& one = all->of[static_cast<size_t>(call)];
  const int number = one.calls++;
  if (all->lost != cuda::kSuccess) return all->lost;
  if (number < one.from || number >= one.until) return cuda::kSuccess;
  if (cuda::loses_device(one.code)) all->lost = one.code;
  return one.code;
}

}  // namespace heddle::cuda_double
