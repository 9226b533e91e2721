// internals.h: what stands behind the handles of heddle.h, and the one place where a Status becomes an
// exception.
//
//   What       Each public handle shares a Rep. Reps hold Refs to runtime objects, so handles may die in any
//              order and on any thread.
//   Errors     Below this folder nothing of ours throws; take() and check() raise heddle::Error by code. A
//              container's failed allocation passes through it; within_memory() makes it exhausted.
//   Threads    Reps are immutable after they were made, except where a member says how it is guarded.
#pragma once

#include <heddle/heddle.h>

#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/no_memory.h"
#include "base/status.h"
#include "batch/calls/coalescer.h"
#include "device/buffer.h"
#include "runtime/runtime.h"

namespace heddle {

class Replicas;

[[noreturn]] void throw_status(const Status& status);
inline void check(const Status& status) {
  if (!status.ok()) throw_status(status);
}
template <class T>
T take(Result<T> result) {
  if (!result.ok()) throw_status(result.status());
  return std::move(result).value();
}

// or_exhausted() for a public call whose sizes the caller chooses.
template <class F>
auto within_memory(F&& call) -> decltype(call()) {
  using Made = decltype(call());
  if constexpr (std::is_void_v<Made>) {
    check(or_exhausted("a call", [&] {
      call();
      return Status();
    }));
  } else {
    return take(or_exhausted("a call", [&]() -> Result<Made> { return call(); }));
  }
}

Deadline to_deadline(const Timeout& timeout);
inline ir::DType to_ir(DType dtype) { return static_cast<ir::DType>(dtype); }
inline DType to_public(ir::DType dtype) { return static_cast<DType>(dtype); }
ir::Extents to_extents(std::span<const int64_t> shape, DType dtype);  // checked: rank, signs, size

struct Device::Rep {
  std::string name;
  Ref<runtime::Runtime> runtime;
  int threads;
};

struct Tensor::Rep {
  device::View view;
  std::shared_ptr<const void> keep;  // owner of the bytes where the view has no buffer
  bool writable = true;
};

struct Event::Rep {
  runtime::Event event;
};

struct Stream::Rep {
  Device device;
  Ref<runtime::Stream> stream;
  // Null for the default stream; its last holder returns it.
  std::shared_ptr<runtime::StreamLease> lease;
};

struct Model::Rep {
  Device device;
  Ref<runtime::Model> model;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  bool batchable;
  std::string why_not;
  // Its close() comes before the last reference goes: make_model() sees to it.
  Ref<batch::Coalescer> calls;
  bool joins;                                          // calls on different threads
  std::unique_ptr<runtime::LoneDoor> door;             // of calls that are never joined; null: they have none
  std::string coalescing;                              // what explain_coalescing() says
  std::shared_ptr<const ir::Graph> source;             // null unless it was to be kept
  std::shared_ptr<const Replicas> replicas = nullptr;  // null: it is on one device alone
  // References to `calls`, counted apart: each submission holds one, and threads that submit share no line.
  static constexpr size_t kApart = 32;
  std::array<Ref<batch::Coalescer>, kApart> calls_apart = {};
};

struct Internals {
  using DeviceRep = Device::Rep;
  using TensorRep = Tensor::Rep;
  using StreamRep = Stream::Rep;
  using ModelRep = Model::Rep;

  static Device make_device(std::shared_ptr<Device::Rep> rep) { return Device(std::move(rep)); }
  static std::weak_ptr<Device::Rep> weak(const Device& device) { return device.rep_; }
  static bool is(const std::weak_ptr<Device::Rep>& weak, const Device& device) {
    return weak.lock() == device.rep_;
  }
  static runtime::Runtime& runtime(const Device& device) { return *device.rep_->runtime; }
  static const Ref<runtime::Runtime>& runtime_ref(const Device& device) { return device.rep_->runtime; }
  static const Device::Rep& rep(const Device& device) { return *device.rep_; }
  static Stream make_stream(std::shared_ptr<Stream::Rep> rep) { return Stream(std::move(rep)); }
  static runtime::Stream& stream(const Stream& stream) { return *stream.rep_->stream; }
  static bool is_on(const Stream& stream, const Device& device) {
    return stream.rep_->device.rep_ == device.rep_;
  }
  static Event make_event(runtime::Event event);
  static const runtime::Event* event(const Event& event) {
    return event.rep_ == nullptr ? nullptr : &event.rep_->event;
  }
  static Tensor make_tensor(device::View view, std::shared_ptr<const void> keep = nullptr,
                            bool writable = true);
  static std::vector<Tensor> make_tensors(std::vector<device::View> views) {
    std::vector<Tensor> tensors;
    tensors.reserve(views.size());
    for (device::View& view : views) tensors.push_back(make_tensor(std::move(view)));
    return tensors;
  }
  static const device::View& view(const Tensor& tensor);  // invalid for a Tensor that is none
  // All of a view but for its buffer: memory.view(dtype, shape, strides, offset). invalid where it leaves it.
  static void set_window(device::View& view, const Model::Window& window);
  static Tensor make_view(const Model::Window& window);  // shares the memory
  static bool writable(const Tensor& tensor) { return view(tensor), tensor.rep_->writable; }
  static Model make_model(std::shared_ptr<Model::Rep> rep) { return Model(std::move(rep)); }
  // Before anyone else has the model.
  static void set_replicas(const Model& model, std::shared_ptr<const Replicas> replicas) {
    model.rep_->replicas = std::move(replicas);
  }
  static const std::shared_ptr<Model::Rep>& rep(const Model& model) { return model.rep_; }
  using BatchFutureRep = BatchFuture::Rep;
  static BatchFuture make_future(std::shared_ptr<BatchFuture::Rep> rep) {
    return BatchFuture(std::move(rep));
  }
  static const std::shared_ptr<const void>& keep(const Tensor& tensor) { return tensor.rep_->keep; }
  // Whether `tensors` own the caller's memory that they show, for work that may outlive the call. False on a
  // synchronous device, where none does.
  static bool keeps_all(const Device& device, std::span<const Tensor> tensors);
  // Owns that memory; null where keeps_all() is false.
  static std::shared_ptr<const void> keep_all(const Device& device, std::span<const Tensor> tensors);
};

// The stream of the innermost StreamGuard of this thread on `device`, or none.
std::optional<Stream> guarded_stream(const Device& device);

}  // namespace heddle
