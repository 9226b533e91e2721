// device.cpp: devices by index, and the calling thread's choice of device and stream.
#include "device.h"

#include "process_end.h"
#include "stream_names.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::torch_backend {
namespace {

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

// What a thread calls on, by the name that it has set, or by its own lease.
struct Choice {
  int64_t number;
  std::optional<Stream> stream;  // none: nothing was submitted to it since
};

struct ThreadChoice {
  c10::DeviceIndex device = 0;
  std::array<std::optional<Choice>, kDevices> set;  // by PyTorch's set_stream
  std::array<std::optional<Choice>, kDevices> own;  // Heddle's choice for the thread, looked up once
  std::array<std::vector<int64_t>, kDevices> lost;  // numbers of its own streams that have failed

  ThreadChoice() { count_caller(); }
  ~ThreadChoice() {
    for (size_t i = 0; i < kDevices; ++i) {
      choose(set, static_cast<c10::DeviceIndex>(i), std::nullopt);
      forget(static_cast<c10::DeviceIndex>(i));
    }
  }
  void forget(c10::DeviceIndex index) { choose(own, index, std::nullopt); }
  // Stream 0 is there without a name.
  static void choose(std::array<std::optional<Choice>, kDevices>& of, c10::DeviceIndex index,
                     std::optional<Choice> next) {
    StreamNames& names = stream_names();
    if (next && StreamNames::is_made(next->number)) {
      names.enter({index, next->number});
    } else if (next && next->number > 0) {
      names.add(index, *next->stream);
    }
    std::optional<Choice>& place = of[static_cast<size_t>(index)];
    place.swap(next);
    if (!next || next->number == 0 || process_ends()) return;
    if (StreamNames::is_made(next->number)) {
      next->stream.reset();  // it is the name's alone
      names.leave({index, next->number});
    } else {
      names.remove(index, *next->stream);
    }
  }
  // Its number goes on meaning what the thread calls on by itself.
  void lose(c10::DeviceIndex index) {
    const auto i = static_cast<size_t>(index);
    if (!own[i]) return;
    if (!has_lost(index, own[i]->number)) lost[i].push_back(own[i]->number);
    forget(index);
  }
  bool has_lost(c10::DeviceIndex index, int64_t number) const {
    return std::ranges::find(lost[static_cast<size_t>(index)], number) !=
           lost[static_cast<size_t>(index)].end();
  }
  // Failed streams are not used again: the next call gets others.
  void replace_failed() {
    for (size_t i = 0; i < kDevices; ++i) {
      const auto index = static_cast<c10::DeviceIndex>(i);
      if (own[i] && has_failed(*own[i]->stream)) lose(index);
      if (!set[i]) continue;
      if (StreamNames::is_made(set[i]->number)) {
        set[i]->stream.reset();
      } else if (has_failed(*set[i]->stream)) {
        choose(set, index, std::nullopt);
      }
    }
    stream_names().drop_failed();
  }
};
ThreadChoice& mine() {
  thread_local ThreadChoice choice;
  return choice;
}

const Stream& own_stream_of(c10::DeviceIndex index) {
  ThreadChoice& choice = mine();
  std::optional<Choice>& own = choice.own[slot(index)];
  if (!own) [[unlikely]] {
    const Device& device = device_at(index);
    const FreeGil without_gil;  // a thread that waits for a lease waits for others
    const StreamNames::Wanted wanted(stream_names(), index);
    Stream stream = current_stream(device);
    const int64_t number = stream.id();
    choice.choose(choice.own, index, Choice{number, std::move(stream)});
  }
  return *own->stream;
}

c10::Stream name_of(int64_t number, c10::DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), number);
}

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
  if (std::optional<Choice>& chosen = choice.set.at(slot(index))) {
    if (!chosen->stream) [[unlikely]]
      chosen->stream = stream_names().stream_of({index, chosen->number});
    return *chosen->stream;
  }
  return own_stream_of(index);
}

int64_t current_stream_number(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  const std::optional<Choice>& chosen = mine().set.at(slot(index));
  return chosen ? chosen->number : current_stream_of(index).id();
}

c10::Stream current_name(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  return name_of(current_stream_number(index), index);
}

NamedStream::Entered::Entered(c10::DeviceIndex its_index, int64_t its_number)
    : index(its_index), number(its_number) {
  if (StreamNames::is_made(number)) stream_names().enter({index, number});
}

NamedStream::Entered::~Entered() {
  if (StreamNames::is_made(number)) stream_names().leave({index, number});
}

NamedStream::NamedStream(const c10::Stream& name) : entered_(index_of(name.device()), name.id()) {
  const auto& [index, number] = entered_;
  if (number == 0) {
    // A thread that calls on it goes on with the one that has failed until it was told.
    const std::optional<Choice>& own = mine().own.at(slot(index));
    stream_ = own && own->number == 0 ? *own->stream : default_stream(device_at(index));
  } else if (StreamNames::is_made(number)) {
    stream_ = stream_names().stream_of({index, number});
  } else if (current_stream_number(index) == number) {
    stream_ = current_stream_of(index);
  } else if (mine().has_lost(index, number) && !stream_names().has_stream({index, number})) {
    stream_ = own_stream_of(index);
  } else {
    stream_ = stream_names().find({index, number});
  }
  TORCH_CHECK(stream_, "there was no stream ", number, " of device heddle:", static_cast<int>(index));
}

bool query_stream(const c10::Stream& name) {
  if (!StreamNames::is_made(name.id())) return NamedStream(name)->query();
  const auto [stream, last] = stream_names().work_of({index_of(name.device()), name.id()});
  return stream ? NamedStream(name)->query() : last.query();
}

void synchronize_stream(const c10::Stream& name) {
  if (!StreamNames::is_made(name.id())) return NamedStream(name)->synchronize();
  const StreamNames::Key key(index_of(name.device()), name.id());
  {
    const auto [stream, last] = stream_names().work_of(key);
    stream ? stream->synchronize() : last.wait();
  }
  stream_names().give_back_idle(key.first);
}

void* native_handle_of(const c10::Stream& name) {
  const NamedStream stream(name);
  void* const handle = stream->native_handle();
  if (handle != nullptr && StreamNames::is_made(name.id()))
    stream_names().keep({index_of(name.device()), name.id()});
  return handle;
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  const c10::DeviceIndex index = index_of(stream.device());
  const c10::Stream former = current_name(index);
  ThreadChoice& choice = mine();
  if (StreamNames::is_made(stream.id())) {
    choice.choose(choice.set, index, Choice{stream.id(), std::nullopt});
    return former;
  }
  const std::optional<Choice>& own = choice.own[slot(index)];
  // Back to what it calls on by itself: the lease may be given back again.
  const bool was_own =
      choice.has_lost(index, stream.id()) &&
      !stream_names().has_stream({index, stream.id()});  // else it is another thread's by now
  if ((own && own->number == stream.id()) || was_own) {
    choice.choose(choice.set, index, std::nullopt);
    return former;
  }
  const NamedStream next(stream);
  const bool is_own = own && own->number == next->id();
  choice.choose(choice.set, index, is_own ? std::nullopt : std::optional(Choice{next->id(), *next}));
  return former;
}

c10::Stream new_stream(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  device_at(index);
  return name_of(stream_names().make(index), index);
}

void synchronize_device(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  device_at(index).synchronize();
  stream_names().give_back_idle(index);
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

void note_lost_streams(const Error& error) {
  const bool is_lost = error.code() == ErrorCode::device_lost;
  if (!is_lost && error.code() != ErrorCode::exhausted) return;
  for (size_t i = 0; i < kDevices && is_lost; ++i) mine().lose(static_cast<c10::DeviceIndex>(i));
  mine().replace_failed();  // on Metal it may have been a stream's own work that had no memory
}

void raise_torch(const Error& error) {
  stay_out_of_exit();  // closing the devices at exit ends waits
  note_lost_streams(error);
  switch (error.code()) {
    case ErrorCode::device_lost:
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
