// device.cpp: devices by index, and the calling thread's choice of device and stream.
#include "device.h"

#include "process_end.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::torch_backend {
namespace {

constexpr size_t kDevices = 8;  // more than this build can have

// A device is opened when it is first used: a GPU's, because a process that has started CUDA may not fork.
// Handles live as long as the process. Opening calls the log, which may be Python's: no thread waits for it
// here with the GIL.
class Devices {
 public:
  Devices() {
    const Device first;
    names_.push_back(first.name());
    opened_[0].store(new Device(first), std::memory_order_release);
    for (const std::string& name : Device::names()) {
      if (name != names_.front() && names_.size() < kDevices) names_.push_back(name);
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  const Device& at(size_t index) {
    std::atomic<const Device*>& place = opened_[index];
    if (const Device* device = place.load(std::memory_order_acquire)) [[likely]]
      return *device;
    const FreeGil without_gil;
    auto made = std::make_unique<Device>(names_[index]);
    const Device* first = nullptr;  // another thread's, of the same device
    if (!place.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *first;
    return *made.release();
  }

 private:
  std::vector<std::string> names_;
  std::array<std::atomic<const Device*>, kDevices> opened_{};
};

Devices& devices() {
  static std::atomic<Devices*> known{nullptr};
  if (Devices* all = known.load(std::memory_order_acquire)) [[likely]]
    return *all;
  const FreeGil without_gil;
  static Devices& all = *new Devices;
  known.store(&all, std::memory_order_release);
  return all;
}

// After what the stream was given. Where there is no memory for an event, that is waited for instead.
Event end_of(const Stream& stream) {
  try {
    return stream.record();
  } catch (const std::bad_alloc&) {
    try {
      stream.synchronize();
    } catch (const Error&) {  // its failure: nothing is under way any more
    }
    return {};
  }
}

// Streams by their numbers, as PyTorch names them: those that threads call on, and those that torch.Stream
// made. The latter stay, since PyTorch copies c10::Streams around and never says when the last is gone;
// beyond kMade of them they are handed out again, as CUDA's pool does. A name whose threads have ended keeps
// no stream: autograd goes on asking for it, and gets the default stream, behind what the named one was
// given. A device has few numbers, and gives them to later threads again.
class StreamNames {
 public:
  using Key = std::pair<c10::DeviceIndex, int64_t>;

  void add(c10::DeviceIndex index, const Stream& stream) {
    Event over;  // let go of outside the lock, as are those below
    const std::lock_guard lock(lock_);
    Named& named = named_[{index, stream.id()}];
    if (named.holders++ > 0) return;
    named.stream = stream;
    over = std::exchange(named.last, {});  // of this very stream, or of one that has failed since
  }
  void remove(c10::DeviceIndex index, const Stream& stream) {
    std::optional<Stream> dropped;
    Event last = end_of(stream);
    const std::lock_guard lock(lock_);
    Named& named = named_.at({index, stream.id()});
    if (--named.holders > 0) return;
    dropped.swap(named.stream);
    std::swap(last, named.last);
    named.was_replaced = false;
  }
  // Nothing: no stream had this number yet.
  std::optional<Stream> find(const Key& key) {
    std::optional<Stream> stream;
    Event last;
    bool was_replaced = false;
    {
      const std::lock_guard lock(lock_);
      const auto found = named_.find(key);
      if (found == named_.end()) return std::nullopt;
      Named& named = found->second;
      stream = named.stream;
      last = named.last;
      if (!stream) named.was_replaced = true;
      was_replaced = named.was_replaced;
    }
    if (stream && !was_replaced) return stream;
    Stream replacement = default_stream(device_at(key.first));
    if (stream) {  // another thread's by now: who means the former one meets what came to its replacement
      stream->wait(replacement.record());
      return stream;
    }
    if (!last.query()) replacement.wait(last);
    return replacement;
  }
  Stream make(c10::DeviceIndex index) {
    std::vector<Stream>& made = made_[static_cast<size_t>(index)];
    {
      const std::lock_guard lock(lock_);
      if (made.size() >= kMade) return made[next_++ % kMade];
    }
    Stream stream(device_at(index));
    add(index, stream);
    const std::lock_guard lock(lock_);
    made.push_back(stream);
    return stream;
  }

 private:
  static constexpr size_t kMade = 16;
  struct Named {
    std::optional<Stream> stream;
    int holders = 0;
    Event last;                 // without a stream: behind what it was given
    bool was_replaced = false;  // somebody got the default stream for it
  };
  std::mutex lock_;
  std::map<Key, Named> named_;
  std::array<std::vector<Stream>, kDevices> made_;
  size_t next_ = 0;
};

StreamNames& stream_names() {
  static StreamNames& names = *new StreamNames;  // threads may outlive every static
  return names;
}

struct ThreadChoice {
  c10::DeviceIndex device = 0;
  std::array<std::optional<Stream>, kDevices> set;  // by PyTorch's set_stream
  std::array<std::optional<Stream>, kDevices> own;  // Heddle's choice for the thread, looked up once

  ThreadChoice() { count_caller(); }
  ~ThreadChoice() {
    for (size_t i = 0; i < kDevices; ++i) {
      choose(set, static_cast<c10::DeviceIndex>(i), std::nullopt);
      forget(static_cast<c10::DeviceIndex>(i));
    }
  }
  void forget(c10::DeviceIndex index) { choose(own, index, std::nullopt); }
  // Stream 0 is there without a name.
  static void choose(std::array<std::optional<Stream>, kDevices>& of, c10::DeviceIndex index,
                     std::optional<Stream> next) {
    if (next && next->id() > 0) stream_names().add(index, *next);
    std::optional<Stream>& place = of[static_cast<size_t>(index)];
    place.swap(next);
    if (next && next->id() > 0 && !process_ends()) stream_names().remove(index, *next);
  }
};
ThreadChoice& mine() {
  thread_local ThreadChoice choice;
  return choice;
}

size_t slot(c10::DeviceIndex index) { return static_cast<size_t>(index); }

}  // namespace

c10::DeviceIndex device_count() noexcept {
  try {
    return static_cast<c10::DeviceIndex>(devices().names().size());
  } catch (const Error&) {
    return 0;  // PyTorch's rule: a device that cannot be opened is not there
  }
}

const Device& device_at(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  TORCH_CHECK_VALUE(index < device_count(), "there is no device heddle:", static_cast<int>(index),
                    "; this build has ", static_cast<int>(device_count()), " (0 to ",
                    static_cast<int>(device_count()) - 1, ")");
  return translated([&]() -> const Device& { return devices().at(slot(index)); });
}

std::vector<std::string> device_names() {
  return translated([] { return devices().names(); });
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}
c10::DeviceIndex current_device() { return mine().device; }

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  if (index < 0) return mine().device;
  device_at(index);
  return std::exchange(mine().device, index);
}

const Stream& current_stream_of(c10::DeviceIndex index) {
  stay_out_of_exit();
  if (index < 0) index = current_device();
  ThreadChoice& choice = mine();
  if (const std::optional<Stream>& chosen = choice.set.at(slot(index))) return *chosen;
  std::optional<Stream>& own = choice.own[slot(index)];
  if (!own) choice.choose(choice.own, index, current_stream(device_at(index)));
  return *own;
}

c10::Stream name_of(const Stream& stream, c10::DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), stream.id());
}

Stream stream_named(const c10::Stream& stream) {
  const c10::DeviceIndex index = index_of(stream.device());
  if (stream.id() == 0) return default_stream(device_at(index));
  if (const Stream& own = current_stream_of(index); own.id() == stream.id()) return own;
  std::optional<Stream> found = stream_names().find({index, stream.id()});
  TORCH_CHECK(found, "there was no stream ", stream.id(), " of device heddle:", static_cast<int>(index));
  return *std::move(found);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const c10::DeviceIndex index = index_of(stream.device());
  const c10::Stream former = name_of(current_stream_of(index), index);
  Stream next = stream_named(stream);
  ThreadChoice& choice = mine();
  // Back to what it calls on by itself: the lease may be given back again.
  const bool is_own = choice.own[slot(index)] && choice.own[slot(index)]->id() == next.id();
  choice.choose(choice.set, index, is_own ? std::nullopt : std::optional(std::move(next)));
  return former;
}

c10::Stream new_stream(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  return name_of(stream_names().make(index), index);
}

void release_thread_slot(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  const Device& device = device_at(index);
  ThreadChoice& choice = mine();
  choice.choose(choice.set, index, std::nullopt);
  choice.forget(index);
  release_current_thread_slot(device);
}

std::string message_of(const Error& error) {
  constexpr std::string_view kBefore = "index ";
  constexpr std::string_view kAfter = " is outside [";
  constexpr int64_t kChanged = int64_t{1} << 62;
  std::string message = error.what();
  const size_t after = message.find(kAfter);
  const size_t before = message.rfind(kBefore, after);
  if (after == std::string::npos || before == std::string::npos) return message;
  int64_t index = 0;
  const char* const end = message.data() + after;
  const auto read = std::from_chars(message.data() + before + kBefore.size(), end, index);
  const size_t comma = message.find(',', after);
  if (read.ptr != end || index < kChanged || comma == std::string::npos) return message;
  message.replace(after + kAfter.size(), comma - after - kAfter.size(), "0");
  return message.replace(before + kBefore.size(), after - before - kBefore.size(),
                         std::to_string(index - INT64_MAX - 1));
}

void raise_torch(const Error& error) {
  stay_out_of_exit();  // closing the devices at exit ends waits
  switch (error.code()) {
    case ErrorCode::device_lost:
      // Its failed streams are not used again: the next call gets others.
      for (size_t i = 0; i < kDevices; ++i) mine().forget(static_cast<c10::DeviceIndex>(i));
      TORCH_CHECK(false, error.what());
    case ErrorCode::unsupported:
      TORCH_CHECK_NOT_IMPLEMENTED(false, error.what());
    case ErrorCode::exhausted:
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
    default:
      TORCH_CHECK(false, message_of(error));
  }
  throw error;  // not reached
}

}  // namespace heddle::torch_backend
