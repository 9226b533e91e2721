// coalescer.h: calls of one model that wait for a lane become one batch, led by one of them.
//
//   What       A caller that finds a lane free, and no caller waiting or expected back, runs at once with its
//              own memory. Others take a seat in a forming batch, write their rows into it and park; when the
//              policy says that a batch is due, one of its callers runs it, each wakes the next, and copies
//              its own rows out. No thread and no timer of ours: one of the waiting callers keeps the time.
//   Policy     batch_policy.h decides; nothing here chooses. While there are more callers than lanes, those
//              just answered are expected back, for at most half the time that a full batch runs, and as
//              long as return_forecast.h says that it pays. Where cost_table.h knows that joining does not
//              pay, calls go alone, in order of arrival, without waiting for other callers.
//   Invariant  A caller gets exactly one answer: its rows, its own row's fault, the batch's failure,
//              deadline, cancelled, exhausted or unavailable. While a caller waits, a lane is busy or
//              a caller keeps the time. A taken batch has a leader among its living members, or is dropped
//              when none is left.
//   Leaving    A caller that leaves (deadline, cancellation) abandons its rows. The rest of the batch is
//              unaffected. A leader leaves at its deadline only; another member then waits for the same run.
//   Threads    Any.
//   Blocks     call(), until its deadline.
//   Lifetime   Outlives its calls. Keeps the runtime and the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "batch/calls/forming_batch.h"
#include "batch/calls/row_layout.h"
#include "batch/policy/batch_policy.h"
#include "batch/policy/cost_table.h"
#include "batch/policy/return_forecast.h"
#include "runtime/runtime.h"

namespace heddle::batch {

struct CoalescerOptions {
  int lanes = 1;  // batches at once
  // Runs at once where joining does not pay. More than lanes, where a hand-over would leave a lane idle.
  int lanes_alone = 1;
  int64_t max_rows = 64;
  size_t max_parked = 4096;                    // callers; one more gets exhausted
  Duration latency_bound = Duration::max();    // batches that are known to run longer are not formed
  std::function<Duration(int64_t rows)> cost;  // for tests: of a run, in the place of what was measured
};

class Coalescer {
 public:
  using Views = std::vector<device::View>;

  Coalescer(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout layout,
            const CoalescerOptions& options);
  // Refuses parked callers (unavailable) and all later ones; batches that run end as ever.
  void close();

  Result<Views> call(std::span<const device::View> inputs, Deadline deadline,
                     const std::stop_token& cancel = {}, Ref<const void> keep = nullptr);  // as Call::keep

  struct Stats {
    uint64_t calls = 0;              // answered with rows or a fault
    uint64_t batches = 0;            // runs, those of lone callers included
    std::vector<uint64_t> rows;      // [n]: runs of n rows; the last one counts all that are larger
    uint64_t refused = 0, left = 0;  // exhausted; deadline or cancelled
    size_t parked = 0;
    int64_t rows_max = 0;  // what a batch of rows like the last ones may take now
  };
  Stats stats() const;
  bool anyone_waits() const { return state_.lock()->stats.parked != 0; }
  const RowLayout& layout() const { return layout_; }

 private:
  using Batch = Ref<FormingBatch>;
  struct Caller {  // what it brings
    std::span<const device::View> inputs;
    const CallShape& shape;
    Deadline deadline;
    const std::stop_token& cancel;
    Ref<const void> keep;

    runtime::Call own_call() const {
      runtime::Call call;
      call.inputs = inputs;
      call.deadline = deadline;
      call.keep = keep;
      return call;
    }
  };
  struct Here {  // a caller in a batch, or without one
    Batch batch;
    size_t seat = 0;
    bool measured = false;  // all lanes are busy: what its run costs is what one lane's run costs
    Member& member() const { return batch->members[seat]; }
  };
  struct Wake {
    Here who;
    Seat::Note note;
  };
  struct Next {  // what follows from a change of the state
    std::vector<Wake> wakes;
    bool lead = false;                    // the caller itself leads its batch
    TimePoint ask_at = TimePoint::max();  // the caller itself keeps the time
  };
  struct Run {
    Result<Views> result;
    TimePoint end = {};
    Duration took{0}, cost{0};  // by the clock; of the lane. 0: not measured
  };
  struct GroupCosts {  // of rows that lie alike
    std::vector<ir::Extents> row_extents;
    CostTable table;
    int64_t rows_max;  // what the table says
  };
  struct State {
    std::vector<Batch> forming;  // oldest first
    uint64_t next_id = 1;
    int busy = 0;
    int inside = 0;           // callers, running ones too
    int64_t inside_rows = 0;  // theirs
    int returning = 0;        // callers answered and not yet back
    ReturnForecast forecast;
    int64_t returning_rows = 0;
    TimePoint returning_until = TimePoint::min();
    Here watcher;  // the caller that asks the policy again, and when
    TimePoint watch_at = TimePoint::max();
    bool closed = false;
    std::vector<GroupCosts> costs;  // the last used last
    Stats stats;

    void end_watch() {
      watcher = {};
      watch_at = TimePoint::max();
    }
  };

  Result<Here> arrive(const CallShape& shape);  // without a batch: to run alone
  Result<Views> run_alone(const Caller& caller, const Here& me);
  Result<Batch> make_batch(const CallShape& shape) const;
  Result<Views> stay(const Here& me, const Caller& caller);
  Next ask(const Here& me, bool seated);
  Result<Views> leave(const Here& me, Status why);
  Result<Views> lead(const Here& me, Deadline deadline);
  Result<Views> collect(const Here& me);
  template <class Body>
  Run timed(TimePoint start, Body&& body);
  Result<Views> run_batch(FormingBatch& batch, Deadline deadline);
  static void wake(const Next& next);

  // Under the lock.
  static void come_in(State& state, const CallShape& shape);
  static void expire_returning(State& state, TimePoint now);
  static Batch open(State& state, Batch batch, const CallShape& shape);
  Batch joinable(const State& state, const CallShape& shape) const;
  static Here sit_down(const Batch& batch, const CallShape& shape);
  void advance(State& state, const Here* me, Next& next) const;
  static void take(State& state, RequestId id, const Here* me, Next& next);
  static void keep_time(State& state, TimePoint until, const Here* me, Next& next);
  // The run of `rows` is over; of them `answered` rows belong to `callers` that get an answer.
  void after_run(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
                 int callers, int64_t answered) const;
  void learn(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
             int callers, int64_t answered) const;
  GroupCosts& costs(State& state, std::span<const ir::Extents> row_extents) const;
  static bool joins(const State& state, const CallShape& shape);
  Running running(const State& state) const;
  Limits limits(const State& state, std::span<const ir::Extents> row_extents) const;

  const Ref<runtime::Runtime> runtime_;
  const Ref<runtime::Model> model_;
  const RowLayout layout_;
  const CoalescerOptions options_;
  mutable Guarded<State, Rank::kBatch> state_;
};

}  // namespace heddle::batch
