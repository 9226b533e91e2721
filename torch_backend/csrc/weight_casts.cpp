// weight_casts.cpp: casts beside the bytes that they were made of.
#include "weight_casts.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "eager.h"
#include "process_end.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

constexpr size_t kMostCasts = 4;  // of one storage: two dtypes, and a part of it

std::atomic<uint64_t>& made() {
  static std::atomic<uint64_t> count{0};
  return count;
}

bool is_of(const WeightCast& cast, const at::Tensor& weight, c10::ScalarType type) {
  return cast.made.scalar_type() == type && cast.from == weight.scalar_type() &&
         cast.offset == weight.storage_offset() && weight.sizes() == cast.made.sizes() &&
         weight.strides() == cast.strides;
}

// A cast that needs memory may call what the application does about it, and that a module with this weight.
thread_local bool is_casting = false;
struct Casting {
  Casting() { is_casting = true; }
  ~Casting() { is_casting = false; }
  Casting(const Casting&) = delete;
  Casting& operator=(const Casting&) = delete;
};

}  // namespace

at::Tensor cast_once(const at::Tensor& weight, c10::ScalarType type) {
  const FreeGil without_gil;  // one that waits for the lock with it would keep it from the one that casts
  const c10::InferenceMode not_of_inference(false);
  Memory* const memory = memory_of(weight.storage());
  if (memory == nullptr || is_casting) return cast(weight, type);
  const Casting casting;
  const std::lock_guard lock(memory->lock);
  // Read before the cast: of what is written meanwhile, the cast would have a part.
  const uint64_t writes = memory->writes.load(std::memory_order_acquire);
  std::erase_if(memory->casts, [&](const WeightCast& each) { return each.writes != writes; });
  for (const WeightCast& each : memory->casts) {
    if (is_of(each, weight, type)) return each.made;
  }
  if (memory->casts.size() == kMostCasts) memory->casts.erase(memory->casts.begin());
  memory->casts.push_back(
      {writes, weight.scalar_type(), weight.storage_offset(), weight.strides().vec(), cast(weight, type)});
  made().fetch_add(1, std::memory_order_relaxed);
  return memory->casts.back().made;
}

uint64_t weight_casts() { return made().load(std::memory_order_relaxed); }

}  // namespace heddle::torch_backend
