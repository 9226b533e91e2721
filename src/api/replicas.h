// replicas.h: one model on several devices of a kind, and which of them a call goes to.
//
//   What       take() gives the device with the fewest rows under way, the first of equals, and counts the
//              call's rows there until the Taken ends. A device that is lost is passed over while another is
//              not. Each has a coalescer of its own: those who wait on one device share its batches.
//   Where      What names a device goes there: a stream, the stream of the thread, tensors in its memory.
//   Threads    Any. The counts are hints: two who choose at once may choose the same.
//   Blocks     Never.
//   Lifetime   Belongs to the model on the first device, which it does not hold; Taken holds the others.
#pragma once

#include "api/internals.h"
#include "base/atomic.h"

namespace heddle {

class Replicas {
 public:
  class Taken {
   public:
    Taken(Taken&& from) noexcept
        : other_(std::move(from.other_)), rows_(std::move(from.rows_)), count_(from.count_) {}
    Taken& operator=(Taken&&) = delete;
    ~Taken() {
      if (rows_ != nullptr) rows_->sub_relaxed(count_);
    }
    // Null: the first device has the call.
    const Model* other() const { return other_ ? &*other_ : nullptr; }

   private:
    friend class Replicas;
    Taken(std::optional<Model> other, std::shared_ptr<Atomic<int64_t>> rows, int64_t count)
        : other_(std::move(other)), rows_(std::move(rows)), count_(count) {
      rows_->add_relaxed(count_);
    }

    std::optional<Model> other_;
    std::shared_ptr<Atomic<int64_t>> rows_;
    int64_t count_;
  };

  // `first`: that of the model which this belongs to. `others`: on other devices.
  Replicas(const Device& first, std::vector<Model> others);

  Taken take(std::span<const Tensor> inputs, const Stream* stream = nullptr) const;
  // For so many requests like this one.
  Taken take(std::span<const Tensor> inputs, int64_t requests) const;
  const std::vector<Model>& others() const { return others_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  Taken on(size_t index, int64_t rows) const;
  size_t device_of(std::span<const Tensor> inputs, const Stream* stream) const;
  size_t least_occupied() const;
  const Device& device(size_t index) const { return devices_[index]; }

  const std::vector<Model> others_;
  const std::vector<Device> devices_;                       // the first, and those of the others
  std::vector<std::shared_ptr<Atomic<int64_t>>> occupied_;  // rows under way, by device
};

// Throws invalid unless they are of one kind, each once.
void check_devices(std::span<const Device> devices);

}  // namespace heddle
