// coalescer.h: calls of one model that wait for a lane become one batch, led by one of them.
//
//   What       A caller that finds a lane free, and no caller waiting or expected back, runs at once with its
//              own memory: through the door while nobody is inside otherwise (lone.cpp), without our lock.
//              Others take a seat in a forming batch, write their rows into it and park; when the policy
//              says that a batch is due, the last of its callers to have written runs it, or else one that
//              is woken; those with their result wake others, and copy their own rows out. One of the
//              waiting callers keeps the time. Where runs are short, callers look for their answer before
//              they sleep (base/looking.h), and among few of them who led a batch leads the next one.
//   Seats      One forming batch is on show: its seats are taken without our lock (open_seats.h), as many as
//              would not change what the policy says. Our lock is for who opens a batch, for who takes the
//              last of those seats, and for who has run one. It counts the callers on show first.
//   Spare      The next batch is on show as well, before anybody needs it: one that is over and has come back
//              (batch_stock.h), or one that the first caller of a batch makes.
//   Absent     submit() seats a call without a thread. Where a batch has no member with a thread, a thread of
//              leaders.h leads and keeps the time; those threads give all absent members their answers.
//   Together   run_together() takes calls that a queue has joined: they have the seats of one batch, which
//              runs at once on the queue's thread. Only the Governor makes it wait.
//   Policy     batch_policy.h decides; nothing here chooses. While there are more callers than lanes, those
//              just answered are expected back, for at most half the time that a full batch runs, and as
//              long as return_forecast.h says that it pays. Where cost_table.h knows that joining does not
//              pay, calls go alone, in order of arrival, without waiting for other callers. Over how many
//              lanes batches are spread, lane_choice.h learns; helpers have the cores of the others.
//   Invariant  A caller gets exactly one answer: its rows, its own row's fault, the batch's failure,
//              deadline, cancelled, exhausted or unavailable. While a caller waits, a lane is busy or
//              the time is kept. A taken batch has a leader among its living members or a thread that leads
//              for them, or is dropped when none is left.
//   Leaving    A caller that leaves (deadline, cancellation) abandons its rows. The rest of the batch is
//              unaffected. Who leads leaves at its deadline only; another member then waits for the same run.
//              When the last member has left, the reaper gives the run's memory and lane back at its end.
//              An absent member that runs alone, with its own memory, leaves as its run does.
//   Door       Shut while anybody waits, is expected back or was joined, and while a batch is on show. Calls
//              that are on a lane by then count as lanes busy, and tell us when they end.
//   Files      coalescer.cpp (the ways in), lone.cpp (calls through the door), seats.cpp (taking one,
//              waiting, leaving), showing.cpp (seats without our lock), leading.cpp (what runs next, and
//              running it), absent.cpp (for members without a thread), bookkeeping.cpp.
//   Threads    Any.
//   Blocks     call() and join(), until their deadline; run_together(), until its run is over. submit()
//              never. close(), until absent members have their answers.
//   Lifetime   Outlives its calls: tasks of absent members share it. Keeps the runtime and the model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "batch/calls/batch_line.h"
#include "batch/calls/batch_stock.h"
#include "batch/calls/forming_batch.h"
#include "batch/calls/leaders.h"
#include "batch/calls/open_seats.h"
#include "batch/calls/padding_check.h"
#include "batch/calls/row_layout.h"
#include "batch/policy/batch_policy.h"
#include "batch/policy/cost_table.h"
#include "batch/policy/lane_choice.h"
#include "batch/policy/return_forecast.h"
#include "runtime/runtime.h"

namespace heddle::batch {

struct CoalescerOptions {
  int lanes = 1;               // batches at once, at most
  bool chooses_lanes = false;  // how many of them, by what is served (lane_choice.h)
  // Runs at once where joining does not pay. More than lanes, where a hand-over would leave a lane idle.
  int lanes_alone = 1;
  // Threads that lead and answer for calls without one, besides lanes_alone + 1: where cores are free while
  // the lanes run.
  int more_leaders = 0;
  int64_t least_share = 1;  // rows that a lane has before others are used; two are not, for so few rows
  // Processors on which those that wait for short runs look before they sleep (looking.h); 0: they sleep.
  int look_on = 0;
  int64_t max_rows = 64;
  size_t max_parked = 4096;                  // callers; one more gets exhausted
  Duration latency_bound = Duration::max();  // batches that are known to run longer are not formed
  bool alone = false;                        // submissions are not joined
  bool door = true;                          // where the device has lanes for that
  bool spare = true;  // the next batch is on show before anybody needs it; false in tests: one alone is
  std::function<Duration(int64_t rows)> cost;  // for tests: of a run, in the place of what was measured
  // Takes a leader that ends its own coalescer (leaders.h); empty where that cannot happen.
  Outlives outlives;
};

class Coalescer : public std::enable_shared_from_this<Coalescer> {
 public:
  using Views = std::vector<device::View>;
  using Batch = Ref<FormingBatch>;
  // Makes what runtime::Call::keep asks for. Called, while the caller waits, where its call runs alone only:
  // threads that share an input would write the count of its owner in each call.
  using Keep = std::function<Ref<const void>()>;

  // `equal`: for rows of equal shapes. `padding`: of ragged rows, if the model can have them.
  Coalescer(Ref<runtime::Runtime> runtime, Ref<runtime::Model> model, RowLayout equal,
            const CoalescerOptions& options, std::unique_ptr<PaddingCheck> padding = nullptr);
  ~Coalescer();
  Coalescer(const Coalescer&) = delete;
  Coalescer& operator=(const Coalescer&) = delete;
  // Refuses parked callers (unavailable) and all later ones; batches that run end as ever. Returns when all
  // absent members have been answered; on one of the threads that answer them, without waiting.
  void close();
  // Refuses likewise, and waits until the deadline only. False: some were not answered by then.
  bool close_until(Deadline deadline);

  // try_call(), or join().
  Result<Views> call(std::span<const device::View> inputs, Deadline deadline,
                     const std::stop_token& cancel = {}, const Keep& keep = nullptr);
  // While nobody else is there: runs the call at once. Nothing: nothing was done.
  std::optional<Result<Views>> try_call(std::span<const device::View* const> inputs,
                                        Duration at_most = Duration::max());
  // Alone on a lane, or in a batch.
  Result<Views> join(std::span<const device::View> inputs, Deadline deadline, const std::stop_token& cancel,
                     const Keep& keep);

  struct Submission {
    std::unique_ptr<Absent> absent;
    Deadline deadline = Deadline::never();
    std::stop_token cancel = {};
    bool alone = false;  // not to be joined, whatever its rows are
  };
  // It is answered once, on a thread of leaders.h. Where this returns a failure, the call was not seated, and
  // is not answered.
  Status submit(Submission call);

  // Calls whose shapes lie in one group. `formed` is called when their rows are staged.
  Result<Batch> run_together(std::span<const Views> calls, const std::function<void()>& formed);
  Result<Views> answer(const Batch& batch, std::span<const device::View> inputs, size_t seat);
  // Gives back the memory of batches that nobody has a seat in, though callers be expected back. Any thread
  // that holds no lock.
  void give_up_idle();
  // Checks the inputs. Calls with the same `row_extents` may run together.
  Result<CallShape> shape_of(std::span<const device::View> inputs) const;

  struct Stats {
    uint64_t calls = 0;              // answered with rows or a fault
    uint64_t batches = 0;            // runs, those of lone callers included
    std::vector<uint64_t> rows;      // [n]: runs of n rows; the last one counts all that are larger
    uint64_t refused = 0, left = 0;  // exhausted; deadline or cancelled
    size_t parked = 0;
    int64_t rows_max = 0;  // what a batch of rows like the last ones may take now
    int lanes = 0;         // that batches are spread over
  };
  Stats stats() const;
  bool anyone_waits() const;
  std::string describe() const;  // what is padded, for people
  int leaders() const { return leaders_.threads(); }

 private:
  struct Caller {  // what it brings
    std::span<const device::View> inputs;
    const RowLayout& layout;
    const CallShape& shape;
    Deadline deadline;
    const Keep* keep = nullptr;  // null: nothing is to be kept

    runtime::Call own_call() const {
      runtime::Call call;
      call.inputs = inputs;
      call.deadline = deadline;
      if (keep != nullptr && *keep) call.keep = (*keep)();
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
    Batch dropped;                        // its memory is given back without the lock
    bool empties_stock = false;           // and that of those in stock
  };
  struct Arrival {
    Here me;
    Next next;
    bool asks = false;  // the policy, once its rows are written
  };
  struct Claimed {
    Here me;
    size_t desk = 0;    // of its batch, until its rows are written
    bool asks = false;  // the policy, once they are
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
  // The batch that grows, and the next one for when it is full. Which is which, first_ says.
  static constexpr size_t kShown = 2;
  static constexpr int kSmallCrowd = 2;  // crowd_ of callers that soon have a turn
  struct State {
    BatchLine forming;
    Batch spare;                        // the next to be opened: nobody has a seat in it that we know of
    std::array<Batch, kShown> on_show;  // of forming, or the spare one; null: none
    uint64_t desks = 0;                 // a bit for each that is in use
    uint64_t next_id = 1;
    int busy = 0;             // lanes, without those of lone calls
    int lone = 0;             // lanes of calls that came through the door, as last seen
    int inside = 0;           // callers, running ones too
    int64_t inside_rows = 0;  // theirs
    int long_runs = 0;        // since the last one that was short enough to look for its end
    int returning = 0;        // callers answered and not yet back
    ReturnForecast forecast;
    std::optional<LaneChoice> choice;
    TimePoint competed = TimePoint::min();  // when callers last did
    int64_t returning_rows = 0;
    TimePoint returning_until = TimePoint::min();
    Here watcher;  // the caller that asks the policy again, and when
    TimePoint watch_at = TimePoint::max();
    bool closed = false;
    std::vector<GroupCosts> costs;  // the last used last
    Stats stats;

    void end_watch_of(const Here& who) {
      if (watcher.batch == who.batch && watcher.seat == who.seat) end_watch();
    }
    void end_watch() {
      watcher = {};
      watch_at = TimePoint::max();
    }
  };

  Status check(std::span<const device::View> inputs) const;
  const RowLayout& layout() const;
  void refuse();

  // Without a batch: to run alone. With `absent` there always is one, and `absent` is moved into its seat.
  Result<Arrival> arrive(const Caller& caller, bool alone, std::unique_ptr<Absent> absent);
  // A seat of a batch on show, its rows not yet written. A caller that stays there may look for one, among
  // many, and keeps the batch. For one that leaves it empty and does not ask the desk keeps it, until its
  // rows are written: it does not write the batch's count, which all callers write.
  enum class Stays : bool { no, yes };
  std::optional<Claimed> claim(const Caller& caller, Stays stays);
  std::optional<Claimed> try_claim(const Caller& caller, Stays stays, bool& met_others);
  Next write_claimed(const Claimed& claimed, const Caller& caller);
  void give_up(const Here& me, bool asks);
  Result<Batch> make_batch(const Caller& caller, bool alone) const;
  Result<Batch> allocate_batch(const Caller& caller, int64_t rows) const;
  Arrival seated(Arrival at, const Caller& caller);
  static void write_rows(const Here& me, const Caller& caller);
  void stock_like(const Caller& caller, const FormingBatch& batch) const;
  Next written(const Here& me, bool asks);
  Result<Views> stay(const Here& me, const Caller& caller, const std::stop_token& cancel, Next next);
  enum class Seen : uint8_t { nothing, note, answer, end };  // end: and it has claimed it
  Seen look(const Here& me, Deadline deadline) const;
  Next ask(const Here& me);
  Result<Views> leave(const Here& me, Status why);
  bool try_leave(const Here& me);  // false: it is answered already, or will be by its run
  static void abandon(FormingBatch& batch);

  Result<Views> run_alone(const Caller& caller, const Here& me);
  // Null: another member publishes the result.
  std::optional<Result<Views>> lead(const Here& me, Deadline deadline, bool has_end);
  // False: another member does. `seat`: of the thread, kNoSeat where it has none. `has_end`: it has claimed
  // it. deadline: the run is not over by then.
  Result<bool> run_and_publish(FormingBatch& batch, Deadline deadline, size_t seat, bool has_end);
  void publish(FormingBatch& batch, Run run, size_t seat);
  Result<Views> collect(const Here& me);
  static void meet(const Here& me);
  Result<Views> rows_of(const FormingBatch& batch, const Member& member);
  template <class Body>
  Run timed(TimePoint start, Body&& body);
  Status start(FormingBatch& batch, Deadline deadline, size_t seat);
  Result<bool> claims_end(FormingBatch& batch, Deadline deadline) const;
  static Views staged(const FormingBatch& batch, int64_t rows);  // the first of its rows
  void wake(const Next& next);

  Status cancelled() const;
  Status late() const;

  // For absent members: on a thread of leaders_, from serve() on.
  std::function<void()> weakly(const Here& who, Seat::Note note);
  void watch(const Here& me, const std::stop_token& cancel);
  void follow(const Here& me, const Next& next);
  void serve_later(const Here& who, Seat::Note note);
  void serve(const Here& who, Seat::Note note);
  void lead_lone(const Here& who);
  void lead_absent(const Batch& batch);
  void check_padding(const FormingBatch& batch);
  void leave_run(const Batch& batch);
  void answer_absents(const Batch& batch);
  void answer_seats(const Batch& batch, size_t first, size_t end);
  void answer_refused(const Batch& batch);
  // Answers, and keeps the promise. tell() leaves that to the caller.
  void give(const Batch& batch, Member& member, Result<Views> result);
  void tell(const Batch& batch, Member& member, Result<Views> result);
  static Leaders::Timer timer_of(const FormingBatch& batch, const Member& member);

  class Leaving;
  void after_lone();
  int crowd(State& state, Duration took) const;
  int lanes_busy(State& state) const;
  int lanes(const State& state) const;
  void shut_door(State& state) const;
  void open_door(State& state) const;

  // Under the lock.
  template <class T>
  static void hint(Atomic<T>& word, T value) {
    if (word.load_relaxed() != value) word.store_relaxed(value);
  }
  static void come_in(State& state, size_t callers, int64_t rows);
  void count_in(State& state) const;  // who has taken a seat since; first after each lock
  static void bring_in(State& state, FormingBatch& batch, const OpenSeats::Taken& all);
  static bool bring_in_shown(State& state, const Batch& batch, const OpenSeats::Taken& all);
  bool show_seats(State& state);  // true: more were taken than the policy knew of
  OpenSeats::Limits limits_of(State& state, const FormingBatch& batch, int64_t may_park) const;
  Batch in_stock(State& state, const Caller& caller) const;
  static bool has_spare(const State& state, const FormingBatch& like);
  void restock(State& state, const FormingBatch& like);
  Batch take_spare(State& state);
  struct Showing {
    Batch batch;
    OpenSeats::Limits limits;
  };
  std::array<Showing, kShown> to_show(State& state) const;
  bool put_on_show(State& state, size_t place, const Showing& next);
  bool guard_bound(State& state);
  bool take_down(State& state, const FormingBatch* batch);  // nothing, where it is not on show
  void clear_desk(State& state, FormingBatch& batch);
  void drop_empty(State& state, const Batch& batch);
  static void expire_returning(State& state, TimePoint now);
  static Batch open(State& state, Batch batch, std::span<const ir::Extents> row_extents);
  bool idle(State& state, bool joined) const;
  Here claim_shown(State& state, const Caller& caller);  // without a batch: there is no seat
  Batch joinable(State& state, const Caller& caller);
  static bool lies_alike(const FormingBatch& batch, const Caller& caller);
  bool may_join(State& state, const FormingBatch& batch, const Caller& caller) const;
  void fill(const Here& me, int64_t first, const Caller& caller) const;
  static bool leave_empty(const Here& me, std::unique_ptr<Absent> absent);
  Here sit_down(State& state, const Batch& batch, const Caller& caller, std::unique_ptr<Absent> absent) const;
  static void count_out(State& state, FormingBatch& batch, Member& member);
  void advance(State& state, const Here* me, Next& next);  // after each change
  bool clear_up(State& state, Next& next);
  void take_due(State& state, const Here* me, Next& next);
  void take(State& state, RequestId id, const Here* me, Next& next);
  void hand_over(State& state, const Batch& batch, const Here* me, Next& next);
  static void appoint(const Batch& batch, size_t seat, Next& next);
  size_t leads_again(const FormingBatch& batch) const;
  static void keep_time(State& state, TimePoint until, const Here* me, Next& next);
  // The run of `rows` is over; of them `answered` rows belong to `callers` that get an answer.
  void after_run(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
                 int callers, int64_t answered) const;
  void learn(State& state, std::span<const ir::Extents> row_extents, const Run& run, int64_t rows,
             int callers, int64_t answered) const;
  GroupCosts& costs(State& state, std::span<const ir::Extents> row_extents) const;
  static bool joins(const State& state, int64_t rows, std::span<const ir::Extents> row_extents);
  Running running(State& state) const;
  Limits limits(const State& state, std::span<const ir::Extents> row_extents) const;

  const Ref<runtime::Runtime> runtime_;
  const Ref<runtime::Model> model_;
  const RowLayout equal_;
  const std::unique_ptr<PaddingCheck> padding_;  // null: nothing is ragged
  const CoalescerOptions options_;
  const uint32_t born_;  // fork_generation() of the maker
  const Ref<BatchStock> stock_;
  mutable runtime::LoneDoor door_;
  std::array<OpenSeats, kShown> open_;
  // Hints for callers without the lock, relaxed; written under it, and only where they change. With what is
  // written at each call, or under each lock, on other cache lines.
  alignas(64) Atomic<uint32_t> first_{0};  // where they look for a seat first
  Atomic<bool> replacing_{false};          // a batch has gone, and the next is about to be on show
  Atomic<int> crowd_{0};                   // callers a processor, in powers of two; 0: runs are not short
  Atomic<bool> lacks_spare_{true};         // there is no spare batch, and who opens one makes it
  // Where claimed seats find their batch, kept there for submissions. Written under the lock before the batch
  // is on show, and cleared when all its seats are written; a claim comes between.
  alignas(64) std::array<Batch, OpenSeats::kDesks> desks_;
  alignas(64) mutable Guarded<State, Rank::kBatch> state_;
  alignas(64) Leaders leaders_;
};

}  // namespace heddle::batch
