// showing.cpp: the batch on show, and seats in it without the lock.
#include <algorithm>
#include <bit>
#include <cstring>

#include "batch/calls/coalescer.h"

namespace heddle::batch {

// ---- without the lock

std::optional<Coalescer::Arrival> Coalescer::claim(const Caller& caller) {
  const CallShape& shape = caller.shape;
  if (shape.is_empty() || shape.rows >= options_.max_rows) return std::nullopt;
  const uint16_t kind = kind_of(shape.row_extents, &caller.layout != &equal_);
  const uint32_t first = first_.load_relaxed();
  auto seat = open_[first].claim(kind, shape.rows);
  if (!seat.has_value()) seat = open_[1 - first].claim(kind, shape.rows);
  if (!seat.has_value()) return std::nullopt;
  Arrival at;
  at.me = {desks_[seat->desk], seat->seat, true};
  Member& member = at.me.member();
  fill(member, seat->first, caller);
  const FormingBatch& batch = *at.me.batch;
  if (!lies_alike(batch, caller)) {
    give_up(at.me, seat->asks);
    return std::nullopt;
  }
  write_rows(at.me, caller);
  Batch spare = seat->seat == 0 ? spare_like(caller, batch) : nullptr;
  at.next = written(at.me, seat->asks, std::move(spare));
  return at;
}

// Who opens a batch sees to the next one, so that others do not wait for its memory. If there is none, who
// opens that one will say so.
Coalescer::Batch Coalescer::spare_like(const Caller& caller, const FormingBatch& batch) const {
  Result<Batch> made = allocate_batch(caller, batch.capacity);
  return made.ok() ? std::move(made).value() : nullptr;
}

// A seat among rows of other extents: it becomes a member that left, with rows of zeros.
void Coalescer::give_up(const Here& me, bool asks) {
  FormingBatch& batch = *me.batch;
  Member& member = me.member();
  member.lengths.clear();
  const CallShape theirs{member.rows, batch.row_extents, {}};
  for (size_t i = 0; i < batch.row_extents.size(); ++i) {
    const auto row = static_cast<size_t>(batch.layout.row_bytes(theirs, i));
    std::memset(batch.slot->input(i).staging->host() + static_cast<size_t>(member.first) * row, 0,
                static_cast<size_t>(member.rows) * row);
  }
  static_cast<void>(written(me, asks));
  const bool left = try_leave(me);
  if (!left) static_cast<void>(collect(me));
  auto state = state_.lock();
  --(left ? state->stats.left : state->stats.calls);
}

// After its rows are there. Who writes the last of a batch that is taken leads it, or has another one do so.
Coalescer::Next Coalescer::written(const Here& me, bool asks, Batch spare) {
  if (!me.batch->is_last_to_write()) return asks ? ask(me, std::move(spare)) : Next{};
  Next next;
  {
    auto state = state_.lock();
    count_in(*state);
    if (spare != nullptr) spare = keep_spare(*state, std::move(spare), me.batch->row_extents);
    if (me.batch->done) {  // refused meanwhile
      clear_desk(*state, *me.batch);
    } else {
      hand_over(*state, me.batch, &me, next);
      if (me.batch->living == 0) advance(*state, nullptr, next);
    }
  }
  wake(next);
  return next;
}

// ---- under the lock

// A seat of a batch on show, as those take it who have no lock: to take the batch down would send all who
// come meanwhile to the lock, where each would take it down again.
Coalescer::Here Coalescer::claim_shown(State& state, const Caller& caller) {
  const uint16_t kind = kind_of(caller.shape.row_extents, &caller.layout != &equal_);
  const uint32_t first = first_.load_relaxed();
  for (const size_t place : {size_t{first}, size_t{1 - first}}) {
    const Batch batch = state.on_show[place];
    if (batch == nullptr || !lies_alike(*batch, caller)) continue;
    const auto seat = open_[place].claim(kind, caller.shape.rows);
    if (!seat.has_value()) continue;
    bring_in_shown(state, batch, open_[place].taken());
    Here me{batch, seat->seat, true};
    fill(me.member(), seat->first, caller);
    return me;
  }
  return {};
}

void Coalescer::count_in(State& state) const {
  const uint32_t first = first_.load_relaxed();
  for (const size_t place : {size_t{first}, size_t{1 - first}}) {
    if (const Batch& batch = state.on_show[place]) bring_in_shown(state, batch, open_[place].taken());
  }
}

// True: somebody has taken a seat since.
bool Coalescer::bring_in_shown(State& state, const Batch& batch, const OpenSeats::Taken& all) {
  if (all.seats == batch->seats) return false;
  if (batch == state.spare) state.forming.push_back(std::exchange(state.spare, nullptr));
  bring_in(state, *batch, all);
  return true;
}

bool Coalescer::take_down(State& state, Batch batch) {
  for (size_t place = 0; batch != nullptr && place < kShown; ++place) {
    if (state.on_show[place] != batch) continue;
    state.on_show[place] = nullptr;
    return bring_in_shown(state, batch, open_[place].take_down());
  }
  return false;
}

void Coalescer::bring_in(State& state, FormingBatch& batch, const OpenSeats::Taken& all) {
  const size_t seats = all.seats - batch.seats;
  const int64_t rows = all.rows - batch.rows;
  if (seats == 0) return;
  if (batch.seats == 0) {
    batch.arrived = Clock::real().now();
    batch.awaits = !batch.alone && state.returning > 0;
  }
  come_in(state, seats, rows);
  state.stats.parked += seats;
  batch.seats += seats;
  batch.living += seats;
  batch.rows += rows;
  batch.living_rows += rows;
}

// The oldest that rows may join, as in joinable(), and the next, for those who find that full. The spare one
// only while a call that comes now would not run at once.
std::array<Coalescer::Showing, Coalescer::kShown> Coalescer::to_show(State& state) const {
  std::array<Showing, kShown> shown;
  size_t count = 0;
  auto may_park = static_cast<int64_t>(options_.max_parked) - static_cast<int64_t>(state.stats.parked);
  const auto add = [&](const Batch& batch) {
    if (count == kShown) return;
    const OpenSeats::Limits limits = limits_of(state, *batch, std::max<int64_t>(0, may_park));
    if (limits.ask_at <= batch->rows) return;
    shown[count++] = {batch, limits};
    may_park -= limits.most - batch->rows;
  };
  for (const Batch& batch : state.forming) add(batch);
  if (state.spare != nullptr && !idle(state, true)) add(state.spare);
  return shown;
}

// Each batch on show may have been promised all the seats that were left: where so many could pass the bound
// on those who wait, nobody takes one while that is decided anew.
bool Coalescer::guard_bound(State& state) {
  bool is_news = false;
  const size_t promised = kShown * static_cast<size_t>(options_.max_rows);
  for (size_t place = 0; place < kShown && state.stats.parked + promised > options_.max_parked; ++place)
    is_news = take_down(state, state.on_show[place]) || is_news;
  return is_news;
}

bool Coalescer::show_seats(State& state) {
  bool is_news = guard_bound(state);
  const std::array<Showing, kShown> shown = to_show(state);
  for (const Batch& each : state.on_show) {
    const auto stays = [&](const Showing& next) { return next.batch == each; };
    if (std::none_of(shown.begin(), shown.end(), stays)) is_news = take_down(state, each) || is_news;
  }
  for (size_t i = 0; i < kShown && shown[i].batch != nullptr; ++i) {
    auto place = std::find(state.on_show.begin(), state.on_show.end(), shown[i].batch);
    if (place == state.on_show.end()) place = std::find(state.on_show.begin(), state.on_show.end(), nullptr);
    const auto index = static_cast<size_t>(place - state.on_show.begin());
    if (i == 0) first_.store_relaxed(static_cast<uint32_t>(index));
    is_news = put_on_show(state, index, shown[i]) || is_news;
  }
  return is_news;
}

// Nobody has a seat in it. Its memory is given back without the lock, by whoever owns what is returned.
Coalescer::Batch Coalescer::take_spare(State& state) {
  take_down(state, state.spare);
  if (state.spare != nullptr) clear_desk(state, *state.spare);
  return std::exchange(state.spare, nullptr);
}

// Returns the one that it replaces, or itself: none is needed.
Coalescer::Batch Coalescer::keep_spare(State& state, Batch spare, std::span<const ir::Extents> row_extents) {
  const bool have = state.spare != nullptr && &state.spare->layout == &spare->layout &&
                    same_rows(state.spare->row_extents, row_extents);
  if (have || state.closed) return spare;
  Batch before = take_spare(state);
  state.spare = open(state, std::move(spare), row_extents);
  return before;
}

// It may have to go when it has its share, or, with a lane free, when all are back that were expected.
OpenSeats::Limits Coalescer::limits_of(State& state, const FormingBatch& batch, int64_t may_park) const {
  if (batch.alone || batch.capacity > OpenSeats::kRowsMost) return {};
  if (!joins(state, 1, batch.row_extents)) return {};
  const Limits limit = limits(state, batch.row_extents);
  Running runs = running(state);
  if (state.returning_rows == 0) ++runs.active;  // who comes next is one more
  int64_t ask_at = rows_per_batch(runs, limit);
  if (runs.busy < runs.lanes && state.returning > 0)
    ask_at = std::min(ask_at, batch.rows + std::max<int64_t>(1, state.returning_rows));
  const int64_t most = std::min({batch.capacity, limit.max_rows, batch.rows + may_park});
  return {std::min(ask_at, most), most};
}

// Or changes its limits. True: it has reached them meanwhile, and nobody asks.
bool Coalescer::put_on_show(State& state, size_t place, const Showing& next) {
  const auto& [batch, limits] = next;
  Batch& shown = state.on_show[place];
  if (shown == batch)
    return bring_in_shown(state, batch, open_[place].allow(limits)) && batch->rows >= limits.ask_at;
  if (batch->desk == FormingBatch::kNoSeat) {
    const auto desk = static_cast<size_t>(std::countr_one(state.desks));
    if (desk == OpenSeats::kDesks) return false;  // callers take seats under the lock
    state.desks |= uint64_t{1} << desk;
    batch->desk = desk;
    desks_[desk] = batch;
  }
  shown = batch;
  open_[place].show(batch->desk, kind_of(batch->row_extents, &batch->layout != &equal_),
                    {batch->seats, batch->rows}, limits);
  return false;
}

// All its seats are written.
void Coalescer::clear_desk(State& state, FormingBatch& batch) {
  if (batch.desk == FormingBatch::kNoSeat) return;
  desks_[batch.desk] = nullptr;
  state.desks &= ~(uint64_t{1} << batch.desk);
  batch.desk = FormingBatch::kNoSeat;
}

}  // namespace heddle::batch
