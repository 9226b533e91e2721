// timeline.h: how far a CUDA queue has got: a word in pinned memory that the GPU writes and anyone reads.
//
//   What       Each submission ends with a write of its value, by its stream or by its graph. look() reads
//              the word, puts what the kernels found wrong in the data into the runs' row faults, and
//              advances. No call of the driver.
//   States     A submission is begun -> enqueued (its write is in the stream) -> over. Others wait for it by
//              an event that is recorded once it is enqueued, never before: CUDA ignores a wait for an event
//              that was never recorded.
//   Failure    A queue that could not enqueue a submission to its end is broken from its value on. It refuses
//              what comes then, and fails when nothing is in flight any more: what it refuses waits, too.
//              Every queue fails once the device is lost.
//   Threads    Any. One at a time settles what is over; another that looks meanwhile goes on.
//   Blocks     look(): never. enqueued(): until another thread has enqueued the value.
//   Lifetime   Holds the device, so that it may outlive its queue.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "device/device.h"
#include "drivers/cuda/memory.h"
#include "drivers/cuda/watcher.h"

namespace heddle::cuda {

class CudaProgram;

// A run whose flags are read when it is over. The submission's list keeps the Run.
struct CheckedRun {
  const device::Run* run;
  const CudaProgram* program;
  const uint32_t* flags;
};

struct Flight {
  uint64_t value = 0;
  Status spoiled;  // it could not be enqueued to its end
  std::vector<CheckedRun> runs;
  std::list<Ref<Pinned>> flags;         // one, or none: nothing of it can be wrong
  Ref<const void> graph;                // that is to live until it is over; null: none
  std::vector<Ref<const void>> others;  // likewise, of a submission of several runs
  bool is_told = false;                 // its graph writes its value, and not the stream

  void keep(Ref<const void> more) {
    if (graph == nullptr) {
      graph = std::move(more);
    } else {
      others.push_back(std::move(more));
    }
  }
};

class CudaTimeline final : public Watched {
 public:
  static Result<Ref<CudaTimeline>> make(Ref<const OpenDevice> device, StreamHandle stream,
                                        Ref<Watcher> watcher, device::Completion completion);
  CudaTimeline(Ref<const OpenDevice> device, StreamHandle stream, Ref<Watcher> watcher, Ref<Pinned> word,
               device::Completion completion);

  void look() override;
  void ask() override;

  Address word() const { return pinned_->address(); }
  Status broken() const;                                      // the cause for which it takes no more
  Result<std::list<Ref<Pinned>>> take_flags(uint64_t bytes);  // zeros; for a Flight, which gives them back
  // Room for the next begin(): that of submissions that are over is used again. Where the host has no memory
  // for more, it waits until one is.
  void make_room();
  // Before the stream's write of its value is enqueued. Where its graph has written it before, the next look
  // finds it. False: the timeline has failed, or the device is lost. Throws nothing.
  bool begin(Flight flight);
  void enqueue_done(uint64_t value);
  // CUDA refused the write of `value`. Waits for the stream, writes the word itself, and breaks the queue.
  void write_failed(uint64_t value, const Status& why);
  // ok once `value` is enqueued; the cause, if it never will be.
  Status enqueued(uint64_t value);
  // `later`, a stream of any device, goes on when all that this queue has taken by now is over.
  Status hold_back(StreamHandle later) const;
  void close();  // by the queue's destructor: what is in flight is waited for

 private:
  struct State {
    std::list<Flight> in_flight;
    // What is over: its graphs are let go of without the lock, by the next make_room() or close().
    std::list<Flight> over;
    std::list<Flight> idle;  // room for more: with the others it is never less than one
    uint64_t enqueued = 0;
    uint64_t broken_from = UINT64_MAX;
    Status cause;
    std::list<Ref<Pinned>> idle_flags;
  };
  void settle(State& state);  // without memory of the host
  bool has_room();
  static void finish(const CheckedRun& run);
  static void record_flags(const CheckedRun& run, device::RowFaults& faults);

  const Ref<const OpenDevice> device_;
  const Ref<Pinned> pinned_;
  // The last value that is over: the GPU writes it, after all that the submission wrote.
  Atomic<uint64_t>& word_;
  const device::Completion completion_;
  mutable Guarded<State, Rank::kStream> state_;
  // Null once the queue is gone. Apart from the state: CUDA may block those who ask and those who wait, and
  // whoever submits needs the state.
  mutable Guarded<StreamHandle, Rank::kStream> stream_;
};

}  // namespace heddle::cuda
