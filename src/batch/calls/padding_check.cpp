#include "batch/calls/padding_check.h"

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

PaddingCheck::PaddingCheck(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout layout,
                           bool trusted)
    : runtime_(std::move(runtime)),
      model_(std::move(model)),
      layout_(std::move(layout).on(runtime_->device().traits())),
      state_(trusted ? State::harmless : State::unknown) {}

bool PaddingCheck::claim() {
  State now = State::unknown;
  return state_.cas_strong_acq_rel(now, State::claimed);
}

void PaddingCheck::check(std::span<const View> inputs) {
  state_.store_relaxed(changes_nothing(inputs) ? State::harmless : State::harmful);
}

// What the call itself is wrong about, it will be told when it runs. A little padding may change less than is
// seen, and a model may take no longer rows: so rows cut short are looked at, too, in place of those.
bool PaddingCheck::changes_nothing(std::span<const View> inputs) const {
  if (!model_->check(inputs).ok()) return false;
  const auto shape = layout_.shape_of(inputs);
  if (!shape.ok() || shape->is_empty()) return false;
  CallShape room = *shape, whole = *shape;
  layout_.make_room(room);
  layout_.fit(whole);
  std::vector<View> begins(inputs.begin(), inputs.end());
  CallShape begin = layout_.cut(begins, *shape);
  return is_same(inputs, *shape, room) && (begin.lengths == shape->lengths || is_same(begins, begin, whole));
}

// What the rows give as they are, and padded to the extents of `room`.
bool PaddingCheck::is_same(std::span<const View> inputs, const CallShape& shape,
                           const CallShape& room) const {
  CallShape fits = shape;
  layout_.fit(fits);
  const auto alone = run_as(inputs, fits), wide = run_as(inputs, room);
  if (!alone.ok() || !wide.ok()) return false;
  for (size_t i = 0; i < wide->size(); ++i) {
    const View& whole = (*wide)[i];
    const ir::Extents extents = layout_.part_of(i, shape.rows, shape.lengths, whole, shape.rows);
    auto part = runtime_->allocate(whole.dtype, extents, device::MemoryKind::staging);
    if (!part.ok() || extents != (*alone)[i].extents) return false;
    layout_.read_rows(i, whole, shape.rows, 0, *part);
    if (!alike((*alone)[i], *part)) return false;
  }
  return true;
}

Result<std::vector<View>> PaddingCheck::run_as(std::span<const View> inputs, const CallShape& shape) const {
  std::vector<View> padded;
  for (size_t i = 0; i < inputs.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const auto staging,
                      runtime_->allocate(static_cast<uint64_t>(shape.rows * layout_.row_bytes(shape, i)),
                                         device::MemoryKind::staging));
    layout_.write_rows(i, shape, inputs[i], staging->host(), 0);
    padded.push_back(layout_.whole_input(i, shape.row_extents[i], staging, shape.rows));
  }
  runtime::Call call;
  call.inputs = padded;
  return runtime_->run(*model_, call);
}

std::string PaddingCheck::describe() const {
  switch (state_.load_relaxed()) {
    case State::harmless:
      break;
    case State::harmful:
      return "rows of equal shapes only, since padding " + layout_.describe() + " changed a row's result";
    case State::unknown:
    case State::claimed:
      return "padded are " + layout_.describe() +
             ", once the first call that waits has shown that it changes no result";
  }
  return "padded are " + layout_.describe();
}

}  // namespace heddle::batch
