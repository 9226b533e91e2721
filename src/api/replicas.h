// replicas.h: one model on several devices of a kind, and which of them a call goes to.
//
//   What       take() gives the device with the fewest rows under way, the first of equals, and counts the
//              call's rows there until the Taken ends. A device that is lost or closed is passed over while
//              another is not. Each has a coalescer of its own: who waits on one device shares its batches.
//   Where      What names a device goes there: a stream, the stream of the thread, tensors in its memory.
//   Threads    Any. The counts are hints: two who choose at once may choose the same.
//   Blocks     Never.
//   Lifetime   Belongs to the model on the first device, which it does not hold. A Taken is gone before it.
#pragma once

#include "api/internals.h"
#include "base/atomic.h"

namespace heddle {

class Replicas {
 public:
  class Taken {
   public:
    Taken(const Replicas& of, size_t index, int64_t rows) : of_(&of), index_(index), rows_(rows) {
      of_->occupied_[index_].rows.add_relaxed(rows_);
    }
    Taken(Taken&& from) noexcept
        : of_(std::exchange(from.of_, nullptr)), index_(from.index_), rows_(from.rows_) {}
    Taken& operator=(Taken&&) = delete;
    ~Taken() {
      if (of_ != nullptr) of_->occupied_[index_].rows.sub_relaxed(rows_);
    }
    // Null: the first device has the call.
    const Model* other() const { return index_ == 0 ? nullptr : &of_->others_[index_ - 1]; }

   private:
    const Replicas* of_;  // null: moved away
    const size_t index_;
    const int64_t rows_;
  };

  // `first`: that of the model which this belongs to. `others`: on other devices.
  Replicas(const Device& first, std::vector<Model> others);

  Taken take(std::span<const Tensor> inputs, const Stream* stream = nullptr) const;
  // For so many requests like this one.
  Taken take(std::span<const Tensor> inputs, int64_t requests) const;
  // Whose memory one of the inputs is in.
  std::optional<size_t> device_of(std::span<const Tensor> inputs) const;
  const std::vector<Model>& others() const { return others_; }
  const std::vector<Device>& devices() const { return devices_; }  // the first, and those of the others

 private:
  struct alignas(64) Occupied {  // a line of its own
    Atomic<int64_t> rows{0};
  };
  size_t named_or_least(std::span<const Tensor> inputs, const Stream* stream) const;
  size_t least_occupied() const;

  const std::vector<Model> others_;
  const std::vector<Device> devices_;
  const std::unique_ptr<Occupied[]> occupied_;  // rows under way, by device
};

// Throws invalid unless they are of one kind, each once.
void check_devices(std::span<const Device> devices);

}  // namespace heddle
