// product_tuning.h: measures the ways of a product on this processor, and keeps what was the fastest.
//
//   What       alone() and shared() give the decision about a product whose weight is packed: a kept one, or
//              by measuring now, where tuner.h says so. None: the default rule holds.
//   Measured   The product of a rung's rows (product_way.h) over the weight itself. Alone: again and again,
//              with whatever the core's caches keep of the weight, since each way reads it for the first time
//              at the same cost. Shared: on the team, after each of its threads has read kOtherBytes of
//              something else. Else a way that makes every core read all of the weight would seem to cost
//              nothing, while in a model other layers' weights come between.
//   Exactness  Chooses among ways of equal bits only, where the shape says rows_only.
//   Threads    Any. shared() counts as a caller of the team meanwhile. It does not measure beside others,
//              callers or processes.
//   Memory     The rows of the rung, their results, and scratch, while it measures: not counted.
#pragma once

#include <memory>
#include <optional>

#include "drivers/host/machine/team.h"
#include "drivers/host/onednn/product.h"
#include "drivers/host/tuning/tuner.h"

namespace heddle::host {

class ProductTuning {
 public:
  static constexpr uint64_t kOtherBytes = 2 << 20;  // what a core's own cache holds, roughly

  ProductTuning(Tuner::Options options, std::weak_ptr<Team> team)
      : tuner_(std::move(options)), team_(std::move(team)) {}

  Result<std::optional<Way>> alone(const Engine& engine, const ProductProblem& problem,
                                   const Ref<const LinearWeight>& weight);
  Result<std::optional<Way>> shared(const Engine& engine, const ProductProblem& problem,
                                    const Ref<const LinearWeight>& weight, int width);
  std::string where() const { return tuner_.where(); }  // decisions are kept; "": nowhere

 private:
  Tuner tuner_;
  std::weak_ptr<Team> team_;  // the device's
};

}  // namespace heddle::host
