// roster.h: every living stream of a runtime. The only place that makes one.
//
//   Threads    Any.
//   Errors     make() returns the loss of a device that is gone.
//   Blocks     make() as long as the driver needs for a queue. synchronize(), until its deadline. close()
//              never.
//   Lifetime   Holds streams weakly: they belong to the pool, to lanes and to their lessees. For a moment a
//              thread that calls living() holds each of them, too.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/streams/stream.h"

namespace heddle::runtime {

class Roster final : public Holder {
 public:
  Roster(Ref<device::Device> device, const Clock& clock);

  Result<Ref<Stream>> make(int index, std::optional<void*> foreign = std::nullopt);
  Status synchronize(Deadline deadline);  // all; goes on past a failing one, returns the first failure
  void send() override;                   // what any of them holds back
  void give_up();                         // sends that, and waits a second at most to let go of it
  bool send_older(TimePoint than) const;  // the reaper's (Stream::send_if_older); true: some hold back still
  size_t drop_finished() const;           // how many submissions are still in flight
  void close();                           // refuses submissions on all, and new streams
  std::vector<Ref<Stream>> living() const;
  void forget(const Ref<Stream>& stream);  // a failed one that has been replaced: synchronize() omits it
  const Ref<Bell>& bell() const { return bell_; }  // rings when work of any stream is over

 private:
  struct Members {
    std::vector<std::weak_ptr<Stream>> streams;
    bool closed = false;
  };
  const Ref<device::Device> device_;
  const Clock* const clock_;
  const Ref<Bell> bell_;
  mutable Guarded<Members, Rank::kPool> members_;
};

}  // namespace heddle::runtime
