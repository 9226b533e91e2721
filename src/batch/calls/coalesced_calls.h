// coalesced_calls.h: the calls of one model, joined into batches; padded where that is shown to be safe.
//
//   What       Where the user declared what is ragged, rows are padded at once. What is only known of common
//              exports is checked first: the first call that meets waiting ones runs its rows alone and
//              padded; when the outputs are the same, to a hundredth of their scale, calls are padded from
//              then on, and otherwise never. Names alone do not say how a model reads its rows out.
//   States     Padding: unknown -> checked by one call -> harmless | harmful.
//   Threads    Any.
//   Blocks     call(), until its deadline; the one that checks, for two runs more.
//   Lifetime   As Coalescer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "batch/calls/coalescer.h"

namespace heddle::batch {

class CoalescedCalls {
 public:
  // `padded`: the layout with ragged rows, if there is one; `trusted`: without the check.
  CoalescedCalls(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, const RowLayout& equal,
                 const std::optional<RowLayout>& padded, bool trusted, const CoalescerOptions& options);
  void close();
  Result<Coalescer::Views> call(std::span<const device::View> inputs, Deadline deadline,
                                const std::stop_token& cancel = {},
                                Ref<const void> keep = nullptr);  // as Call::keep
  Coalescer::Stats stats() const;
  std::string describe() const;  // what is padded, for people

 private:
  enum class Padding : uint8_t { unknown, checked, harmless, harmful };
  bool pads(std::span<const device::View> inputs);
  bool is_harmless(std::span<const device::View> inputs) const;

  const Ref<runtime::Runtime> runtime_;
  const Ref<runtime::Model> model_;
  Coalescer equal_;
  std::unique_ptr<Coalescer> padded_;  // null: nothing is ragged
  // Left by one thread, acq_rel, whose check then gives the verdict (release); callers acquire it.
  Atomic<Padding> padding_;
};

}  // namespace heddle::batch
