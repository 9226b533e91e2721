// showing.cpp: the batch on show, and seats in it without the lock.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/looking.h"
#include "batch/calls/coalescer.h"

namespace heddle::batch {

// ---- without the lock

// Waits a moment where the next batch is about to be on show: among many callers for a few turns, as whoever
// shows it may need this core. All of them at the lock would sleep there, one after the other.
std::optional<Coalescer::Claimed> Coalescer::claim(const Caller& caller, Stays stays) {
  const CallShape& shape = caller.shape;
  if (shape.is_empty() || shape.rows >= options_.max_rows) return std::nullopt;
  constexpr Patience kFewTurns{Duration(0), 4};
  bool met_others = false;  // rows of another kind, which look alike
  std::optional<Claimed> claimed = try_claim(caller, stays, met_others);
  const auto is_over = [&] {
    if (!met_others) claimed = try_claim(caller, stays, met_others);
    return met_others || claimed.has_value();
  };
  for (Backoff pause; !claimed.has_value() && replacing_.load_relaxed() && pause.spin();) {
    if (is_over()) break;
  }
  const int crowd = crowd_.load_relaxed();
  if (stays == Stays::yes && !claimed.has_value() && crowd > kSmallCrowd)
    static_cast<void>(look_for(is_over, crowd, kFewTurns, caller.deadline));
  return claimed;
}

std::optional<Coalescer::Claimed> Coalescer::try_claim(const Caller& caller, Stays stays, bool& met_others) {
  const CallShape& shape = caller.shape;
  const uint16_t kind = kind_of(shape.row_extents, &caller.layout != &equal_);
  const uint32_t first = first_.load_relaxed();
  auto seat = open_[first].claim(kind, shape.rows);
  if (!seat.has_value()) seat = open_[1 - first].claim(kind, shape.rows);
  if (!seat.has_value()) return std::nullopt;
  const Batch& batch = desks_[seat->desk];
  const bool keeps = stays == Stays::yes || seat->asks || !lies_alike(*batch, caller);
  Claimed claimed{{keeps ? batch : Batch(Batch(), batch.get()), seat->seat, true}, seat->desk, seat->asks};
  fill(claimed.me, seat->first, caller);
  if (lies_alike(*claimed.me.batch, caller)) return claimed;
  give_up(claimed.me, claimed.asks);
  met_others = true;
  return std::nullopt;
}

Coalescer::Next Coalescer::write_claimed(const Claimed& claimed, const Caller& caller) {
  const Here& me = claimed.me;
  write_rows(me, caller);
  if (me.seat == 0 && lacks_spare_.load_relaxed()) stock_like(caller, *me.batch);
  return written(me, claimed.asks);
}

// Who opens a batch sees to the next one, so that others do not wait for its memory. If there is none, who
// opens that one will say so. Let go, it is in stock.
void Coalescer::stock_like(const Caller& caller, const FormingBatch& batch) const {
  if (stock_->has(batch.layout, batch.row_extents, batch.capacity)) return;  // one came back meanwhile
  const Result<Batch> made = allocate_batch(caller, batch.capacity);
  if (made.ok()) (*made)->row_extents = batch.row_extents;
}

// A seat among rows of other extents: it becomes a member with rows of zeros that leaves, and is not paced,
// as its thread takes another seat. If its batch ran before that, its rows were no call's.
void Coalescer::give_up(const Here& me, bool asks) {
  FormingBatch& batch = *me.batch;
  Member& member = me.member();
  member.lengths.clear();
  member.pace = nullptr;
  const CallShape theirs{member.rows, batch.row_extents, {}};
  for (size_t i = 0; i < batch.row_extents.size(); ++i) {
    const auto row = static_cast<size_t>(batch.layout.row_bytes(theirs, i));
    std::memset(batch.slot->input(i).staging->host() + static_cast<size_t>(member.first) * row, 0,
                static_cast<size_t>(member.rows) * row);
  }
  static_cast<void>(written(me, asks));
  const bool left = try_leave(me);
  if (!left) meet(me);
  auto state = state_.lock();
  if (left) {
    --state->stats.left;
  } else if (!batch.refused) {
    --state->stats.calls;
  }
}

// After its rows are there. Who writes the last of a batch that is taken leads it, or has another one do so.
Coalescer::Next Coalescer::written(const Here& me, bool asks) {
  if (!me.batch->is_last_to_write(me.member().is_absent.load_relaxed())) return asks ? ask(me) : Next{};
  Next next;
  Batch batch;
  const bool refused = [&] {
    auto state = state_.lock();
    count_in(*state);
    batch = me.batch->desk == FormingBatch::kNoSeat ? me.batch : desks_[me.batch->desk];
    if (batch->done) {
      clear_desk(*state, *batch);
      return true;
    }
    hand_over(*state, batch, &me, next);
    if (batch->living == 0) advance(*state, nullptr, next);
    return false;
  }();
  wake(next);
  if (refused) answer_refused(batch);
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
    fill(me, seat->first, caller);
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
  if (batch == state.spare) state.forming.push(std::exchange(state.spare, nullptr));
  bring_in(state, *batch, all);
  return true;
}

bool Coalescer::take_down(State& state, const FormingBatch* batch) {
  for (size_t place = 0; batch != nullptr && place < kShown; ++place) {
    if (state.on_show[place].get() != batch) continue;
    const Batch shown = std::exchange(state.on_show[place], nullptr);
    return bring_in_shown(state, shown, open_[place].take_down());
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
  for (const Batch& batch : state.forming.joinable()) add(batch);
  if (state.spare != nullptr && !idle(state, true)) add(state.spare);
  return shown;
}

// Each batch on show may have been promised all the seats that were left: where so many could pass the bound
// on those who wait, nobody takes one while that is decided anew.
bool Coalescer::guard_bound(State& state) {
  bool is_news = false;
  const size_t promised = kShown * static_cast<size_t>(options_.max_rows);
  for (size_t place = 0; place < kShown && state.stats.parked + promised > options_.max_parked; ++place)
    is_news = take_down(state, state.on_show[place].get()) || is_news;
  return is_news;
}

bool Coalescer::show_seats(State& state) {
  bool is_news = guard_bound(state);
  const std::array<Showing, kShown> shown = to_show(state);
  for (const Batch& each : state.on_show) {
    const auto stays = [&](const Showing& next) { return next.batch == each; };
    if (std::none_of(shown.begin(), shown.end(), stays)) is_news = take_down(state, each.get()) || is_news;
  }
  for (size_t i = 0; i < kShown && shown[i].batch != nullptr; ++i) {
    auto place = std::find(state.on_show.begin(), state.on_show.end(), shown[i].batch);
    if (place == state.on_show.end()) place = std::find(state.on_show.begin(), state.on_show.end(), nullptr);
    const auto index = static_cast<size_t>(place - state.on_show.begin());
    if (i == 0) hint(first_, static_cast<uint32_t>(index));
    is_news = put_on_show(state, index, shown[i]) || is_news;
  }
  return is_news;
}

// Nobody has a seat in it. Its memory is given back without the lock, by whoever owns what is returned.
Coalescer::Batch Coalescer::take_spare(State& state) {
  take_down(state, state.spare.get());
  if (state.spare != nullptr) clear_desk(state, *state.spare);
  return std::exchange(state.spare, nullptr);
}

Coalescer::Batch Coalescer::in_stock(State& state, const Caller& caller) const {
  const CallShape& shape = caller.shape;
  const int64_t share = rows_per_batch(running(state), limits(state, shape.row_extents));
  return stock_->take(caller.layout, shape.row_extents, std::max(shape.rows, share));
}

bool Coalescer::has_spare(const State& state, const FormingBatch& like) {
  return state.spare != nullptr && &state.spare->layout == &like.layout &&
         same_rows(state.spare->row_extents, like.row_extents);
}

// The next batch is on show before anybody needs it.
void Coalescer::restock(State& state, const FormingBatch& like) {
  if (like.alone || !options_.spare) return;
  hint(lacks_spare_, !has_spare(state, like));
  if (has_spare(state, like)) return;
  const int64_t rows = rows_per_batch(running(state), limits(state, like.row_extents));
  Batch batch = stock_->take(like.layout, like.row_extents, rows);
  if (batch == nullptr) return;
  const Batch before = take_spare(state);  // for rows of another kind
  state.spare = open(state, std::move(batch), like.row_extents);
  hint(lacks_spare_, false);
}

// It may have to go when it has its share, or, with a lane free, when all are back that were expected: with a
// row each at the earliest.
OpenSeats::Limits Coalescer::limits_of(State& state, const FormingBatch& batch, int64_t may_park) const {
  if (batch.alone || batch.capacity > OpenSeats::kRowsMost) return {};
  if (!joins(state, 1, batch.row_extents)) return {};
  const Limits limit = limits(state, batch.row_extents);
  Running runs = running(state);
  if (state.returning_rows == 0) ++runs.active;  // who comes next is one more
  const int64_t share = rows_per_batch(runs, limit);
  int64_t ask_at = share;
  if (runs.busy < runs.lanes && state.returning > 0) ask_at = std::min(ask_at, batch.rows + state.returning);
  // Where a run of more rows takes longer, those who come until it is taken have seats in the next one.
  const auto& sizes = runtime_->device().traits().row_sizes;
  const int64_t full = sizes.empty() ? batch.capacity : batch.layout.rows_to_run(sizes, share);
  const int64_t most = std::min({full, batch.capacity, limit.max_rows, batch.rows + may_park});
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
