// padding_check.h: whether a model's rows may be padded to one length.
//
//   What       Where the user declared what is ragged, rows are padded at once. What is only known of common
//              exports is checked first: once calls wait for each other, the rows of one are run alone and
//              padded; when the outputs are the same, to a hundredth of their scale, calls are padded from
//              then on, and otherwise never. Names alone do not say how a model reads its rows out.
//   States     unknown -> claimed by one thread -> harmless | harmful.
//   Threads    Any.
//   Blocks     check(), for two runs. Nothing else.
//   Lifetime   Keeps the runtime and the model.
#pragma once

#include <span>
#include <string>

#include "base/atomic.h"
#include "batch/calls/row_layout.h"
#include "runtime/runtime.h"

namespace heddle::batch {

class PaddingCheck {
 public:
  // `layout`: with ragged rows. `trusted`: without the check.
  PaddingCheck(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout layout, bool trusted);

  bool is_harmless() const { return state_.load_relaxed() == State::harmless; }
  bool is_unknown() const { return state_.load_relaxed() == State::unknown; }
  bool claim();  // true: the caller has to check()
  void check(std::span<const device::View> inputs);

  const RowLayout& layout() const { return layout_; }
  std::string describe() const;  // what is padded, for people

 private:
  enum class State : uint8_t { unknown, claimed, harmless, harmful };
  bool changes_nothing(std::span<const device::View> inputs) const;
  bool is_same(std::span<const device::View> inputs, const CallShape& shape, const CallShape& room) const;
  Result<std::vector<device::View>> run_as(std::span<const device::View> inputs,
                                           const CallShape& shape) const;

  const Ref<runtime::Runtime> runtime_;
  const Ref<runtime::Model> model_;
  const RowLayout layout_;
  // Claimed by one thread, whose check then gives the verdict. The verdict is all that it says: relaxed.
  Atomic<State> state_;
};

}  // namespace heddle::batch
