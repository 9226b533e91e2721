#include "batch/calls/coalesced_calls.h"

#include <algorithm>
#include <cmath>

#include "ir/tensor.h"

namespace heddle::batch {

using device::View;

namespace {

constexpr double kTolerance = 1e-2;  // of the output's scale; bf16 rounds at about half of it

bool alike(const View& a, const View& b) {
  const ir::Tensor x = ir::Tensor::borrow(a.dtype, a.extents, a.host(), nullptr);
  const ir::Tensor y = ir::Tensor::borrow(b.dtype, b.extents, b.host(), nullptr);
  double scale = 0, difference = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double u = x.get(i), v = y.get(i);
    if (u == v || (std::isnan(u) && std::isnan(v))) {
      scale = std::isfinite(u) ? std::max(scale, std::abs(u)) : scale;
      continue;
    }
    if (!std::isfinite(u) || !std::isfinite(v)) return false;
    scale = std::max(scale, std::abs(u));
    difference = std::max(difference, std::abs(u - v));
  }
  return difference <= kTolerance * scale;
}

}  // namespace

CoalescedCalls::CoalescedCalls(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model,
                               const RowLayout& equal, const std::optional<RowLayout>& padded, bool trusted,
                               const CoalescerOptions& options)
    : runtime_(std::move(runtime)),
      model_(std::move(model)),
      equal_(runtime_, model_, equal, options),
      padded_(padded ? std::make_unique<Coalescer>(runtime_, model_, *padded, options) : nullptr),
      padding_(trusted ? Padding::harmless : Padding::unknown) {}

void CoalescedCalls::close() {
  equal_.close();
  if (padded_ != nullptr) padded_->close();
}

Result<Coalescer::Views> CoalescedCalls::call(std::span<const View> inputs, Deadline deadline,
                                              const std::stop_token& cancel, Ref<const void> keep) {
  Coalescer& calls = padded_ != nullptr && pads(inputs) ? *padded_ : equal_;
  return calls.call(inputs, deadline, cancel, std::move(keep));
}

bool CoalescedCalls::pads(std::span<const View> inputs) {
  Padding now = padding_.load_acquire();
  if (now != Padding::unknown) [[likely]]
    return now == Padding::harmless;
  if (!equal_.anyone_waits() || !padding_.cas_strong_acq_rel(now, Padding::checked)) return false;
  const bool harmless = is_harmless(inputs);
  padding_.store_release(harmless ? Padding::harmless : Padding::harmful);
  return harmless;
}

// What the call itself is wrong about, it will be told when it runs.
bool CoalescedCalls::is_harmless(std::span<const View> inputs) const {
  if (!model_->check(inputs).ok()) return false;
  auto shape = padded_->layout().shape_of(inputs);
  if (!shape.ok() || shape->is_empty()) return false;
  const RowLayout& layout = padded_->layout();
  layout.make_room(*shape);
  std::vector<View> padded;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto staging = runtime_->allocate(static_cast<uint64_t>(shape->rows * layout.row_bytes(*shape, i)),
                                      device::MemoryKind::staging);
    if (!staging.ok()) return false;
    layout.write_rows(i, *shape, inputs[i], (*staging)->host(), 0);
    padded.push_back(layout.whole_input(i, shape->row_extents[i], *staging, shape->rows));
  }
  runtime::Call call;
  call.inputs = inputs;
  const auto alone = runtime_->run(*model_, call);
  call.inputs = padded;
  const auto wide = runtime_->run(*model_, call);
  if (!alone.ok() || !wide.ok()) return false;
  for (size_t i = 0; i < wide->size(); ++i) {
    const View& whole = (*wide)[i];
    const ir::Extents extents = layout.part_of(i, shape->rows, shape->lengths, whole, shape->rows);
    auto part = runtime_->allocate(whole.dtype, extents, device::MemoryKind::staging);
    if (!part.ok() || extents != (*alone)[i].extents) return false;
    layout.read_rows(i, whole, shape->rows, 0, *part);
    if (!alike((*alone)[i], *part)) return false;
  }
  return true;
}

Coalescer::Stats CoalescedCalls::stats() const {
  Coalescer::Stats all = equal_.stats();
  if (padded_ == nullptr) return all;
  const Coalescer::Stats more = padded_->stats();
  all.calls += more.calls;
  all.batches += more.batches;
  for (size_t n = 0; n < all.rows.size(); ++n) all.rows[n] += more.rows[n];
  all.refused += more.refused;
  all.left += more.left;
  all.parked += more.parked;
  if (more.batches != 0) all.rows_max = more.rows_max;
  return all;
}

std::string CoalescedCalls::describe() const {
  if (padded_ == nullptr) return "rows of equal shapes only";
  const char* when = "";
  switch (padding_.load_acquire()) {
    case Padding::harmless:
      break;
    case Padding::harmful:
      return "rows of equal shapes only, since padding " + padded_->layout().describe() +
             " changed a row's result";
    case Padding::unknown:
    case Padding::checked:
      when = ", once the first call that waits has shown that it changes no result";
  }
  return "padded are " + padded_->layout().describe() + when;
}

}  // namespace heddle::batch
