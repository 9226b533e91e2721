// device.h: PyTorch's device index <-> Heddle's device, and the calling thread's choice of device and stream.
//
//   What       Index i is the i-th of Device::names(), HEDDLE_DEVICE's (or the default) first. A thread's
//              current stream is the one it has set, else Heddle's: the default stream on the main thread, a
//              leased one on others, returned when the thread ends.
//   Threads    Any. What a thread has chosen is its own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <heddle/heddle.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::torch_backend {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

c10::DeviceIndex device_count() noexcept;  // opens the first one only
std::vector<std::string> device_names();
const Device& device_at(
    c10::DeviceIndex index);                    // -1: the current one; an index there is none of: ValueError
c10::DeviceIndex index_of(c10::Device device);  // its own, or the current one's
c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex index);  // returns the former

const Stream& current_stream_of(c10::DeviceIndex index);
int64_t current_stream_number(c10::DeviceIndex index);  // PyTorch's, and the same whatever lease it has
c10::Stream current_name(c10::DeviceIndex index);
c10::Stream exchange_stream(const c10::Stream& stream);
c10::Stream new_stream(c10::DeviceIndex index);  // a name: it is leased a stream by its first work

// The stream that has a name, to submit to. Where the threads that called on it have ended: the default
// stream, behind what it was given. What torch.Stream made keeps its lease at least as long as this lives.
class NamedStream {
 public:
  explicit NamedStream(const c10::Stream& name);
  const Stream& operator*() const { return *stream_; }
  const Stream* operator->() const { return &*stream_; }

 private:
  class Entered {
   public:
    Entered(c10::DeviceIndex index, int64_t number);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    const c10::DeviceIndex index;
    const int64_t number;
  };
  const Entered entered_;
  std::optional<Stream> stream_;  // let go of first
};
bool query_stream(const c10::Stream& name);
void synchronize_stream(const c10::Stream& name);
void synchronize_device(c10::DeviceIndex index);
void* native_handle_of(const c10::Stream& name);  // that keeps its lease from here on
void release_thread_slot(c10::DeviceIndex index);

// The calling thread's next calls get other streams in the place of those that have failed.
void note_lost_streams(const Error& error);
// Runs f; what Heddle throws becomes PyTorch's exception for it: NotImplementedError for unsupported,
// OutOfMemoryError for exhausted memory, else RuntimeError with Heddle's message.
template <class F>
auto translated(F&& f) -> decltype(f());
[[noreturn]] void raise_torch(const Error& error);
// The message, with a negative index that without_negatives() of ops/term.h changed as the caller gave it.
std::string message_of(const Error& error);

template <class F>
auto translated(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    raise_torch(error);
  }
}

}  // namespace heddle::torch_backend
