// submission_fixture.h: what a test submits to a coalescer.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "batch/calls/forming_batch.h"

namespace heddle::batch {

// One input, and what its answer is given to. Owns `owner` for as long as it lives.
class Submitted final : public Absent {
 public:
  using Then = std::function<void(Result<Views>)>;
  Submitted(const device::View& input, Then then, Ref<const void> owner = nullptr)
      : inputs_{input}, owner_(std::move(owner)), then_(std::move(then)) {}
  std::span<const device::View> inputs() const override { return inputs_; }
  void answer(Result<Views> result) override { then_(std::move(result)); }

 private:
  const Views inputs_;
  const Ref<const void> owner_;
  const Then then_;
};

inline std::unique_ptr<Absent> submitted(const device::View& input, Submitted::Then then = {},
                                         Ref<const void> owner = nullptr) {
  return std::make_unique<Submitted>(input, std::move(then), std::move(owner));
}

}  // namespace heddle::batch
