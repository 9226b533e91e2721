#include "drivers/sim/work.h"

#include <algorithm>
#include <cstring>

#include "device/row_faults.h"

namespace heddle::sim {

using device::View;

namespace {

constexpr uint64_t kShadowBytes = 256 << 10;  // more is not worth the memory
constexpr double kPoisonValue = 83;           // one that all types have

uint64_t bytes_of(const std::vector<View>& views) {
  uint64_t sum = 0;
  for (const View& view : views) sum += view.bytes();
  return sum;
}

bool touch_each_other(const device::Run& run) {
  const auto range = [](const View& view) { return Bytes{view.address(), view.address() + view.bytes()}; };
  for (const View& output : run.outputs) {
    for (const View& input : run.inputs) {
      if (overlap(range(output), range(input))) return true;
    }
  }
  return false;
}

void poison(const View& contiguous) {
  if (contiguous.bytes() > 0) std::memset(contiguous.host(), kPoison, contiguous.bytes());
}

// The first half along axis 0, or the rest.
View half_of(View view, bool first) {
  const int64_t middle = view.extents[0] / 2;
  if (!first) {
    view.offset += static_cast<uint64_t>(middle * view.strides[0] * ir::size_of(view.dtype));
    view.extents[0] -= middle;
  } else {
    view.extents[0] = middle;
  }
  return view;
}

}  // namespace

Status InnerQueue::run(device::Run run) {
  device::CommandList list;
  list.run(std::move(run.program), std::move(run.arena), std::move(run.inputs), std::move(run.outputs),
           std::move(run.row_faults));
  const Status status = queue_->submit(list, ++value_, NoLocksHeld{});
  if (queue_->timeline()->failed()) return queue_->timeline()->failure();
  return status;
}

Result<Ref<device::Buffer>> InnerQueue::allocate(uint64_t bytes) const {
  HEDDLE_TRY_ASSIGN(auto memory, device_->allocate(bytes, device::MemoryKind::device, NoLocksHeld{}));
  return std::make_shared<device::Buffer>(std::move(memory), bytes, nullptr);
}

void Work::LateFaults::tell() const {
  if (owner == nullptr || known == nullptr || !known->any()) return;
  for (int64_t row = 0; row < known->rows(); ++row) {
    if (Status fault = known->of(row); !fault.ok()) owner->record(row, std::move(fault));
  }
}

Work::Work(const Step& step, Position position, InnerQueue& inner, Schedule& schedule)
    : step_(step), position_(position), inner_(inner) {
  choose(schedule);
}

void Work::choose(Schedule& schedule) {
  moment_ = static_cast<Moment>(schedule.below(4));
  if (const auto* run = std::get_if<device::Run>(&step_.command)) {
    if (touch_each_other(*run)) moment_ = Moment::kBeginning;
    if (moment_ == Moment::kHalves) moment_ = Moment::kEnd;
    if (moment_ == Moment::kShadow && bytes_of(run->outputs) > kShadowBytes) moment_ = Moment::kEnd;
    return;
  }
  const auto* copy = std::get_if<device::Copy>(&step_.command);
  const View& to = copy != nullptr ? copy->to : std::get<device::Fill>(step_.command).to;
  if (moment_ == Moment::kShadow && (copy == nullptr || to.bytes() > kShadowBytes)) moment_ = Moment::kEnd;
  if (moment_ == Moment::kHalves && (to.extents.rank() == 0 || to.extents[0] < 2)) moment_ = Moment::kEnd;
}

void Work::take_from_host() const {
  for (const Touch& touch : step_.touches) touch.block->take_from_host(touch.range);
}

Status Work::begin() {
  take_from_host();
  for (const Touch& touch : step_.touches) {
    if (touch.writes && !touch.arena) touch.block->hide_from_host(touch.range, position_);
  }
  if (const auto* run = std::get_if<device::Run>(&step_.command)) return begin_run(*run);
  if (const auto* copy = std::get_if<device::Copy>(&step_.command)) {
    begin_copy(*copy);
    return {};
  }
  const auto& fill = std::get<device::Fill>(step_.command);
  switch (moment_) {
    case Moment::kBeginning:
      fill_view(fill.to, fill.value);
      break;
    case Moment::kHalves:
      fill_view(half_of(fill.to, true), fill.value);
      break;
    default:
      fill_view(fill.to, kPoisonValue);
  }
  return {};
}

Status Work::end() {
  if (moment_ == Moment::kEnd || moment_ == Moment::kHalves) take_from_host();
  if (const auto* run = std::get_if<device::Run>(&step_.command)) return end_run(*run);
  if (const auto* copy = std::get_if<device::Copy>(&step_.command)) {
    end_copy(*copy);
    return {};
  }
  const auto& fill = std::get<device::Fill>(step_.command);
  if (moment_ == Moment::kEnd) fill_view(fill.to, fill.value);
  if (moment_ == Moment::kHalves) fill_view(half_of(fill.to, false), fill.value);
  return {};
}

void Work::begin_copy(const device::Copy& copy) {
  switch (moment_) {
    case Moment::kBeginning:
      copy_view(copy.from, copy.to);
      break;
    case Moment::kHalves:
      copy_view(half_of(copy.from, true), half_of(copy.to, true));
      break;
    case Moment::kShadow:
      snapshot_.resize(copy.from.bytes());
      shadow_.push_back(View::contiguous(snapshot_.data(), copy.from.dtype, copy.from.extents));
      copy_view(copy.from, shadow_[0]);
      [[fallthrough]];
    case Moment::kEnd:
      fill_view(copy.to, kPoisonValue);
  }
}

void Work::end_copy(const device::Copy& copy) const {
  if (moment_ == Moment::kEnd) copy_view(copy.from, copy.to);
  if (moment_ == Moment::kHalves) copy_view(half_of(copy.from, false), half_of(copy.to, false));
  if (moment_ == Moment::kShadow) copy_view(shadow_[0], copy.to);
}

Status Work::begin_run(const device::Run& run) {
  for (const Ref<const device::RowFaults>& source : run.sources) {
    const Status fault = source->whole();
    if (fault.ok()) continue;
    skipped_ = true;
    if (run.row_faults != nullptr) run.row_faults->record_whole(fault);
  }
  if (moment_ == Moment::kBeginning) return compute(run, run.outputs);
  for (const View& output : run.outputs) poison(output);
  if (moment_ != Moment::kShadow) return {};
  HEDDLE_TRY(make_shadow(run));
  return compute(run, shadow_);
}

Status Work::make_shadow(const device::Run& run) {
  for (const View& output : run.outputs) {
    HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer, inner_.allocate(std::max<uint64_t>(output.bytes(), 64)));
    shadow_.push_back(View::contiguous(std::move(buffer), output.dtype, output.extents));
  }
  return {};
}

Status Work::end_run(const device::Run& run) {
  if (moment_ == Moment::kEnd) HEDDLE_TRY(compute(run, run.outputs));
  for (size_t i = 0; i < shadow_.size(); ++i) copy_view(shadow_[i], run.outputs[i]);
  // Nothing of a run is left in its arena for the next one.
  if (run.arena != nullptr)
    std::memset(run.arena->host(), kPoison, std::min(run.arena->bytes(), kShadowBytes));
  return {};
}

Status Work::compute(const device::Run& run, const std::vector<View>& outputs) {
  if (skipped_) return {};
  device::Run inner = run;
  inner.outputs = outputs;
  inner.sources.clear();
  inner.row_faults = nullptr;
  if (run.row_faults != nullptr && run.row_faults->rows() > 0)
    inner.row_faults = std::make_shared<device::RowFaults>(run.row_faults->rows());
  faults_ = {inner.row_faults, run.row_faults};
  const Status status = inner_.run(std::move(inner));
  if (status.ok() || status.code() == Code::device_lost) return status;
  if (run.row_faults != nullptr) run.row_faults->record_whole(status);
  return {};
}

}  // namespace heddle::sim
