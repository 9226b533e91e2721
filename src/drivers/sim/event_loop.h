// event_loop.h: what the simulated device does, one event after the other, in virtual time.
//
//   What       Queues hand in submissions; one thread executes them. An event is the beginning or the end of
//              a command, or the telling of completions. Of all queues the one whose event is due first goes
//              next; when that is, the seed says. Nothing sleeps but for want of work: time jumps to the
//              next event. In a simulation (base/simulation.h) its time is the simulation's: the thread
//              waits until an event is due, while the simulation's other threads run.
//   Order      A queue's commands in order; queues interleave command by command. A queue that waits for
//              another's point stands still until the device, not the host, has done it. A completion is told
//              when those of the points that the submission waited for are told, too.
//   Watches    Protocol: memory, lists, values, and by vector clocks that what touches the same bytes was
//              ordered. The first violation fails the device, unless the options say otherwise.
//   Events     A foreign event is a queue of its own, whose one submission ends once the event is reached.
//   Failure    A queue that fails drops what it has not told. Its timeline fails when none of its commands
//              runs. fault_plan.h says what fails on request, and where.
//   Threads    run(): the device's thread. The rest: any. One lock, held for no call out.
//   Blocks     admit(), when the seed says so, until another queue's point is submitted; and for points of
//              other drivers. remove(), until the queue's work is over. await_idle(), until all is over.
//   Memory     A submission that lacks the host's is refused, and takes its turn all the same. The device's
//              own thread needs memory, as the programs that it runs do.
//   Lifetime   Shared by the device, its queues and its memory.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "drivers/sim/event.h"
#include "drivers/sim/fault_plan.h"
#include "drivers/sim/protocol.h"
#include "drivers/sim/sim_device.h"
#include "drivers/sim/work.h"

namespace heddle::sim {

struct QueueState;

inline Status asked_loss() { return Status::device_lost("the simulated device was lost, as was asked for"); }

struct Submission {
  uint64_t value = 0;
  std::vector<Step> steps;
  const device::CommandList* list = nullptr;  // the caller's
  size_t commands = 0;                        // in it
  struct Named {
    std::weak_ptr<device::Buffer> buffer;
    Ref<Block> block;
  };
  std::vector<Named> named;            // by the list: to be alive until this is over
  std::vector<device::Point> awaited;  // of this device
  Ref<SimEvent> gate;                  // not before it is reached

  size_t next = 0;             // step
  std::unique_ptr<Work> work;  // of that step, between its beginning and its end
  Knowledge host_at_submit;
  uint64_t tell_at = 0;  // the completion
  std::vector<Work::LateFaults> faults;

  bool refused = false;  // it is over, too, once what it waits for has failed
  void keep_nothing_but_waits();
};
// Moved from list to list without memory of the host.
using Submissions = std::list<std::unique_ptr<Submission>>;

// Under the event loop's lock, but for what `busy` gives to its thread.
struct QueueState {
  QueueState(QueueNumber its_number, Ref<device::Timeline> its_timeline, uint64_t seed)
      : number(its_number),
        timeline(std::move(its_timeline)),
        schedule(seed, 2 * its_number),
        admission(seed, 2 * its_number + 1) {
    spare.push_back(std::make_unique<Submission>());
  }

  const QueueNumber number;
  const Ref<device::Timeline> timeline;
  Schedule schedule;    // of the event loop's thread
  Schedule admission;   // of its users
  Submissions pending;  // the first one is executed
  Submissions untold;   // over, and the host does not know
  Submissions spare;    // for one that finds no memory: with the others it is never less than one
  uint64_t submitted = 0, finished = 0;
  uint64_t next_at = 0;  // when the next step of `pending` begins or ends
  bool busy = false;     // the event loop's thread works on it without the lock
  bool mute = false;     // completions are lost
  bool hangs = false;    // the command that began last does not end
  bool refused = false;  // work, for the failure
  bool removed = false;
  bool foreign = false;  // stands for an event: goes when that is told
  Status failure;
  Knowledge known;
  std::map<uint64_t, Knowledge> known_at;  // by value, the latest

  bool idle() const { return pending.empty() && untold.empty(); }
};

class EventLoop : public std::enable_shared_from_this<EventLoop> {
 public:
  EventLoop(const SimOptions& options, std::unique_ptr<InnerQueue> inner, device::Completion completion);
  void run();
  void stop();

  Ref<QueueState> add(Ref<device::Timeline> timeline);
  void remove(const Ref<QueueState>& queue);
  Result<device::Point> import_event(Ref<SimEvent> event);
  void wake();
  // Before its submission is handed in. Not ok: the submission is refused.
  Status admit(QueueState& queue, const device::Point& awaited);
  // Where the host has no memory for one: the spare one, once it is free. Not ok: the queue has failed.
  Status take_spare(QueueState& queue, Submissions& one);
  // Takes `one`. Refused ones come with their waits, and only take their turn: that needs no memory.
  Status hand_in(QueueState& queue, Submissions& one);

  void report(Violation what, std::string detail);
  Status enter_call();          // begins each; Fault::kLossInCall: not ok from then on
  void spend(Duration longer);  // in a call, of virtual time
  void given(const Ref<Block>& block);
  void freed(const Ref<Block>& block);
  void check_host_read(const Block& block);
  std::vector<Found> violations() const { return state_.lock()->found; }
  Status lost() const { return state_.lock()->loss; }
  void hold();
  void release();
  void deliver_lost();
  void await_idle();
  SimStats stats() const { return state_.lock()->stats; }
  Faults<Fault>& faults() { return faults_; }
  std::vector<Happened> history() const { return state_.lock()->history; }
  const Clock& clock() const;

 private:
  enum class Event : uint8_t { kNone, kBegin, kEnd, kTell, kFail };
  struct Due {
    Event event = Event::kNone;
    Ref<QueueState> queue;
    uint64_t at = 0;
    Status cause;  // of kFail
  };
  struct State {
    std::vector<Ref<QueueState>> queues;
    QueueNumber queues_made = 0;
    uint64_t now = 0;  // nanoseconds
    Knowledge host;    // of what the host has been told
    std::deque<Ref<Block>> quarantine;
    uint64_t quarantined = 0;  // bytes
    // What submissions that were dropped wrote, and the host will not be shown: for the event loop's thread.
    std::vector<std::pair<Ref<Block>, Position>> unshown;
    std::vector<Found> found;
    Status loss;         // of the device
    bool ended = false;  // ... and all queues have failed
    bool held = false, stopped = false;
    SimStats stats;
    bool keeps_history = false;
    std::vector<Happened> history;

    const Ref<QueueState>* find(const device::Timeline* timeline) const;
    Due next() const;
    Due next_of(const Ref<QueueState>& queue) const;
    Status settled(const device::Point& point, bool& is) const;
    bool waits_in_vain(const QueueState& queue) const;
    void report(Violation what, std::string detail, bool fails);
    void note(Happened::What what, QueueNumber queue, uint64_t value, std::string detail = "");
  };
  uint64_t tick(State& state) const;  // brings its `now` up to date
  Due await(Guarded<State, Rank::kStream>::Held& state) const;
  void act(const Due& due);
  void begin(QueueState& queue);
  bool begin_step(State& state, QueueState& queue, Submission& submission);
  void begin_first(const State& state, QueueState& queue, const Submission& submission) const;
  void signal(QueueState& queue, Submission& submission);
  void end(QueueState& queue);
  void tell(QueueState& queue);
  void fail(QueueState& queue, const Status& cause);
  void fail_all(const Status& cause);
  void keep_spare(QueueState& queue, Submissions& over);  // the first, where there is none
  bool check_alive(State& state, const Submission& submission) const;
  void touch(State& state, QueueState& queue, const Submission& submission, const Step& step) const;
  void finish(State& state, QueueState& queue);
  static void release_blocks(const Submission& submission);
  static Submissions take_all(State& state, QueueState& queue);
  static void signal_dropped(const Submissions& dropped);
  void pause();

  const SimOptions options_;
  const bool shares_time_;  // with a simulation
  const TimePoint began_;
  const uint64_t seed_;
  const std::unique_ptr<InnerQueue> inner_;
  const device::Completion completion_;
  Faults<Fault> faults_;
  ManualClock clock_;  // shows State::now, unless time is a simulation's
  Retired retired_{1};
  Schedule pauses_;                      // of run()
  Guarded<State, Rank::kStream> state_;  // before a timeline's
};

}  // namespace heddle::sim
