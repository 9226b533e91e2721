// stream.h: an order of work on a device.
//
//   What       What is submitted to one stream runs in order. Only a Turn can submit, and a stream has one
//              Turn at a time: so two threads cannot encode at once, whether a stream is leased by one of
//              them or shared.
//   Foreign    A stream may be in step with one of another library: each submission waits for what that one
//              was given before, and that one goes on, with what it is given later, after the submission. It
//              has to exist during submissions only.
//   States     working -> failed, for good (its pool replaces it), or closed (its runtime ends).
//   Waits      submit() collects what the named buffers have to wait for *before* it takes its own value. A
//              value therefore only waits for values that were taken earlier, and no circle of waits can
//              arise, whatever buffers threads submit in whatever order.
//   Held back  On an asynchronous device runs that nobody waits for share a submission: one value, record
//              and Permit. The first is held back; others join it, up to Traits::runs_together. Only runs
//              that wait for no other stream do so: a value that is held back waits for nothing. It is sent
//              when it is full, before anything else is submitted to the stream, when somebody asks (send()),
//              and by the reaper when nobody has joined it for kPatience.
//   Asking     Who waits for a point wants it first (HeldBack::want). That sends it, or leaves it to the
//              owner of the Turn, and waits for no Turn. So that it is sent soon, a thread that has a Turn
//              sends what the stream holds back before it waits: for a Permit, or while it submits what
//              waits for other streams.
//   Prepared   A list that names nothing but a slot, which is its submitter's, waits for nothing, and its
//              buffers are not marked (submit_prepared).
//   In flight  On an asynchronous device a record keeps list, buffers and permit until the timeline has
//              passed it. The thread that waits for the results drops it; without such a thread a later
//              submission or the reaper does. On a synchronous device the work is over when submit() returns:
//              there is no record, and buffers are not marked.
//   Memory     What a submission needs of the host's memory it has before it takes its value, or it throws
//              std::bad_alloc. What lacks memory later is submitted without its commands, but for its waits,
//              and returned as exhausted, so that its value is reached.
//   Threads    Any, for all of Stream; a Turn belongs to the thread that took it. One lock per stream, shared
//              with the reaper only.
//   Blocks     turn(), synchronize(), await(): until their deadline. submit() as long as the device's queue
//              does: on a synchronous device, the work. Turn first, then Permit: a thread that has a Permit
//              waits for no Turn, and one that has a Turn for no other. No thread waits with a Turn while
//              another one has the device exclusively, as that one may want it: see DuringHold::step_aside.
//   Lifetime   Shared. The destructor waits for what is in flight.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"
#include "runtime/admission/governor.h"
#include "runtime/ids.h"
#include "runtime/streams/event.h"

namespace heddle::runtime {

class Stream;

struct Submission {  // kept until the work is over
  Permit permit;
  Ref<const void> keep;
  Ref<const void> slot;  // whose memory the commands name
  bool awaited = false;  // the submitter calls Stream::await(): the reaper is not woken for it
  bool joins = false;    // a run that nobody waits for: it may share a submission, and then its Permit
};

class Turn {  // the right to submit to one stream; move-only
 public:
  Turn(Turn&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Turn& operator=(Turn&&) = delete;
  ~Turn();

  // Starts (synchronous devices: does) the work; returns its value on the stream's timeline.
  //   invalid       only the data could show the mistake; the stream goes on
  //   device_lost   and others: the stream had failed, fails now, or would read what a failed stream should
  //                 have written
  //   unavailable   the runtime is closed
  Result<uint64_t> submit(device::CommandList list, Submission extras = {});
  // The same, of commands that name nothing but `extras.slot`, which nobody else uses: they wait for nothing,
  // and no buffer is marked. `list` stays as it is until the work is over. On an asynchronous device.
  Result<uint64_t> submit_prepared(const device::CommandList& list, Submission extras);
  // Adds a run to what the stream holds back, without a Permit of its own. Nothing: it cannot, and nothing is
  // held back any more.
  std::optional<Result<uint64_t>> try_join(device::CommandList& list, Submission& extras);
  // Submits what the stream holds back. What is refused then, its runs' row faults report, too.
  Status send();
  Stream& stream() const { return *stream_; }

 private:
  friend class Stream;
  explicit Turn(Stream* stream) : stream_(stream) {}
  Stream* stream_;
};

class Stream final : public Holder, public std::enable_shared_from_this<Stream> {
 public:
  static constexpr Duration kPatience = std::chrono::microseconds(100);
  Stream(Ref<device::Device> device, std::unique_ptr<device::Queue> queue, StreamId id, const Clock& clock,
         std::optional<void*> foreign = std::nullopt);
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamId id() const { return id_; }
  bool is_default() const { return id_.index == 0; }
  const Ref<device::Timeline>& timeline() const { return queue_->timeline(); }
  // What others submit there comes after all that this stream was given before: it holds nothing back again.
  // Blocks while another thread submits. The caller has no Turn.
  void* native();
  bool failed() const { return timeline()->failed(); }

  Result<Turn> turn(Deadline deadline = Deadline::never());
  std::optional<Turn> try_turn();
  // As Turn::submit(), on a synchronous device, for the owner of the Turn or of the stream's lane, on whose
  // stream nobody else submits.
  Status submit_now(device::CommandList& list);
  // The same, where `list` names no buffer that another device's work uses.
  Status run_now(const device::CommandList& list);
  Event record(Timed timed = Timed::no) const;  // after everything submitted so far
  bool query() const;                           // everything submitted so far is over
  Status synchronize(Deadline deadline) const;
  Status await(uint64_t value, Deadline deadline);  // waits for an awaited submission and drops its record
  uint64_t last_submitted() const { return last_.load_acquire(); }  // or held back

  // Once, before the first submission: from here on it may hold submissions back.
  void share_submissions(Ref<Bell> bell);
  // What is held back is submitted, by this thread or by the owner of the Turn at its end.
  void send() override;
  // For the reaper: sends what nobody has added to since then. True: something is held back still.
  bool send_if_older(TimePoint than);

  uint64_t in_flight() const;  // submissions that are not over
  size_t drop_finished();      // lets go of what is over; how many are left
  void close();                // for the runtime: refuses submissions from here on

 private:
  friend class Turn;
  struct Record {
    uint64_t value;
    bool accepted;  // the queue's submit() has returned. Work may be over before: the list is still read
    device::CommandList list;
    Submission extras;
    const device::CommandList* prepared = nullptr;  // in the place of `list`: the submitter's
    std::vector<Submission> joined = {};            // what came later to the same submission
  };
  using Records = std::list<Record>;  // each stays where it is
  enum : uint32_t { kFree, kTaken, kAwaited };
  struct Nothing {};

  void end_turn();
  Status check_usable() const;
  Status order_after_others(device::CommandList& list) const;
  void mark_buffers(device::CommandList& list, uint64_t value) const;
  Record& add_record(device::CommandList list, Submission extras, int runs_together = 1);
  Status mark(Record& record) const;
  static Status cause_of(const device::CommandList& list, Status refused);
  uint64_t take_value();
  Result<uint64_t> do_now(const device::CommandList& list);
  bool may_hold_back(const device::CommandList& list) const;
  Result<uint64_t> hold_back(device::CommandList list, Submission extras);
  std::optional<Result<uint64_t>> try_join(device::CommandList& list, Submission& extras);
  Status send_held();
  Status start(Record& record);
  void set_accepted(Record& record);
  void leave_to_reaper(uint64_t value);
  Result<uint64_t> submit_in_flight(device::CommandList list, Submission extras);
  Result<uint64_t> submit_prepared(const device::CommandList& list, Submission extras);

  const Ref<device::Device> device_;  // outlives the queue
  const std::unique_ptr<device::Queue> queue_;
  const StreamId id_;
  const Clock* const clock_;
  const bool synchronous_;
  const std::optional<void*> foreign_;  // devices that order such streams are asynchronous
  const uint32_t generation_;           // fork_generation() of the maker
  bool shares_ = false;
  Record* held_ = nullptr;            // the last of the records: the owner of the Turn's
  Atomic<Duration::rep> touched_{0};  // when the last run came to it, for the reaper: a hint
  // Somebody wants what is held back. Who asks exchanges it and then tries to take the Turn; who ends a Turn
  // and leaves something held back exchanges it after that. So the later one sees the other: the asker finds
  // the Turn free, or its owner the question.
  Atomic<uint32_t> asked_{0};
  bool exposed_ = false;        // others may submit to native(): the owner of the Turn's
  Atomic<bool> closed_{false};  // set once by the runtime, read by submit(); it publishes nothing
  // Written by the owner of the Turn, before the queue sees the value; a reader may wait for it. Released:
  // who finds a value that is held back finds that the timeline says so.
  Atomic<uint64_t> last_{0};
  // The Turn: kAwaited says that a thread sleeps on turn_over_. Acquire-release: the next Turn sees what
  // the last one did.
  Atomic<uint32_t> turn_{kFree};
  Guarded<Nothing, Rank::kStream> turn_over_;
  Guarded<Records, Rank::kStream> records_;
};

}  // namespace heddle::runtime
