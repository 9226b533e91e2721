// flight.h: one submission after commit: what its completion handler needs, and what it does.
//
//   What       Filled by the recorder before commit; then the handler's. completed() looks at the errors of
//              its command buffers, waits (by being called again, not by blocking) until what it depends on
//              is decided, passes the status words on to the runs' row faults, and ends the submission on its
//              timeline.
//   Threads    One at a time: the recorder, then the handler, then the thread that decides what it waits for.
//   Refused    A submission that is refused has a flight, too, which waits for what its list names. Without a
//              command buffer it waits by itself: wait_without_commands().
//   Memory     What the handler does needs none of the host's: errors, rows' faults and words that find none
//              are `exhausted`.
//   Lifetime   Shared by the handler's block and the timelines that it waits for. The command list and what
//              it names are kept by the stream until end() has been called.
#pragma once

#import <Metal/Metal.h>

#include <list>
#include <vector>

#include "device/row_faults.h"
#include "drivers/metal/open_device.h"
#include "drivers/metal/staging.h"
#include "drivers/metal/timeline.h"

namespace heddle::metal {

class MetalProgram;

class Flight final : public std::enable_shared_from_this<Flight> {
 public:
  Flight(Ref<MetalTimeline> timeline, uint64_t value, const OpenDevice& open)
      : timeline_(std::move(timeline)),
        value_(value),
        staging_(open.staging),
        loss_(open.loss),
        listener_(open.listener),
        defences_(open.options.defences) {}

  // For the recorder.
  struct CheckedRun {
    const device::Run* run;
    const MetalProgram* program;
    std::vector<id<MTLBuffer>> words;  // staged; one a check
  };
  void wait_for(const Ref<MetalTimeline>& timeline, uint64_t value) { waits_.push_back({timeline, value}); }
  // Of somebody else's, where no command buffer waits for it.
  void wait_for_event(id<MTLSharedEvent> event, uint64_t value) {
    events_.emplace_back(Owned<id<MTLSharedEvent>>::retain(event), value);
  }
  // Metal may not signal for a command buffer that failed: then the flight does.
  void signals(id<MTLSharedEvent> event, uint64_t value) {
    signals_.emplace_back(Owned<id<MTLSharedEvent>>::retain(event), value);
  }
  void check(CheckedRun run) { runs_.push_back(std::move(run)); }
  Result<id<MTLBuffer>> stage(uint64_t bytes);  // until the flight is over
  void keep(Staged buffer) { kept_.push_back(std::move(buffer)); }
  // A command buffer that MPSGraph commits on its own, before the last one; told once or twice.
  // Without memory to look at its error, the queue fails.
  void add_earlier(id<MTLCommandBuffer> part);
  bool has_earlier() const { return has_earlier_; }
  void spoil(Status status) { status_ = std::move(status); }  // it runs, but is not what was asked for
  void keep_nothing_but_waits();  // of a submission that is refused: they are recorded anew
  void wait_without_commands();   // and there is no command buffer for them
  void waited_for();              // without the defence: Metal says that it is over
  static void end_waited_for(MetalTimeline& timeline, uint64_t value);  // it has no flight

  void completed(id<MTLCommandBuffer> last);  // the handler

 private:
  struct Wait {
    Ref<MetalTimeline> timeline;
    uint64_t value;
  };
  static void settle_all(WaitingList& ready);
  void settle(WaitingList& ready);
  void look_at(id<MTLCommandBuffer> part);
  bool depends_on_undecided();
  bool awaits_event();
  static void finish_run(const CheckedRun& run);
  static void record_words(const CheckedRun& run, device::RowFaults& faults);
  void finish();
  void signal_for_the_failed();

  const Ref<MetalTimeline> timeline_;
  const uint64_t value_;
  const Ref<Staging> staging_;
  const Ref<FirstFailure> loss_;
  const Owned<MTLSharedEventListener*> listener_;
  const Defences defences_;
  WaitingList place_ = WaitingList(1);  // empty while it waits
  std::vector<Wait> waits_;
  size_t decided_ = 0;  // of waits_
  std::vector<std::pair<Owned<id<MTLSharedEvent>>, uint64_t>> events_;
  std::vector<std::pair<Owned<id<MTLSharedEvent>>, uint64_t>> signals_;
  std::vector<CheckedRun> runs_;
  std::list<Staged> staged_;
  std::vector<Staged> kept_;
  std::vector<Owned<id<MTLCommandBuffer>>> earlier_;
  Status status_;
  bool refused_ = false, has_earlier_ = false;
};

}  // namespace heddle::metal
