// product_trial.h: a product in several ways over memory of its own, to be run and timed.
//
//   What       make() prepares memory; a way is prepared when it is first timed. y() is what the last run
//              wrote.
//   Errors     A way that oneDNN has no kernel for takes Duration::max(). time_shared() gives unavailable if
//              the team has other callers, or if one of its threads does not get its core: what other
//              processes take would be held against every way that shares.
//   Threads    One, and the team's helpers during time_shared().
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/machine/team.h"
#include "drivers/host/onednn/product.h"

namespace heddle::host {

class ProductTrial {
 public:
  static Result<ProductTrial> make(const Engine& engine, const ProductProblem& problem,
                                   Ref<const LinearWeight> weight, std::vector<Way> ways);

  Result<Duration> time_alone(size_t way, const Clock& clock);
  // Each thread reads `others` first, at once with all others.
  Result<Duration> time_shared(size_t way, const Clock& clock, Team& team, std::span<const std::byte> others);
  std::span<const std::byte> y() const { return {y_.data(), y_.size()}; }
  std::span<float> x() const { return {reinterpret_cast<float*>(x_.data()), x_.size() / sizeof(float)}; }

 private:
  // Null: oneDNN has no kernel for it.
  Result<Ref<const Product>> prepare(size_t way);
  ProductMemory memory() const;
  Status run_shared(const Product& product, Team::Caller& caller) const;

  const Engine* engine_ = nullptr;
  ProductProblem problem_;
  Ref<const LinearWeight> weight_;
  std::vector<Way> ways_;
  std::vector<Ref<const Product>> products_;
  AlignedBytes x_, bias_, residual_, y_, scratch_;
};

}  // namespace heddle::host
