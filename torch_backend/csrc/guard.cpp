// guard.cpp: PyTorch's device guard, hooks and generator for device "heddle": devices, streams and events.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/Event.h>

#include <utility>

#include "device.h"
#include "generator.h"
#include "hooks.h"
#include "pinned.h"
#include "private_names.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

// An event of PyTorch's is null until it is recorded, then one of Heddle's.
const Event& event_of(void* event) {
  static const Event never;
  return event == nullptr ? never : *static_cast<const Event*>(event);
}

struct Guard final : DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, exchange_device(device.index())};
  }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() < device_count()) exchange_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    c10::DeviceCapability capability;
    uint64_t& bits = capability.capability_data.capability_bits = 0;
    for (size_t i = 0; i < c10::NUMBER_OF_DEVICE_CAPABILITIES; ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      if (counterpart(type) || c10::isComplexType(type)) bits |= uint64_t{1} << i;
    }
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override {
    return translated([&] { return current_name(device.index()); });
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(priority == 0, "streams of heddle have no priorities: leave priority at 0");
    return translated([&] { return new_stream(device.index()); });
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return translated([&] { return exchange_stream(stream); });
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return translated([&] { return native_handle_of(stream); });
  }
  bool queryStream(const c10::Stream& stream) const override {
    return translated([&] { return query_stream(stream); });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    translated([&] { synchronize_stream(stream); });
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    translated([&] { synchronize_device(index); });
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/,
              c10::EventFlag /*flag*/) const override {
    translated([&] {
      Event recorded = NamedStream(stream)->record();
      if (*event == nullptr) {
        *event = new Event(std::move(recorded));
      } else {
        *static_cast<Event*>(*event) = std::move(recorded);
      }
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    translated([&] { NamedStream(stream)->wait(event_of(event)); });
  }
  bool queryEvent(void* event) const override { return event_of(event).query(); }
  void synchronizeEvent(void* event) const override {
    translated([&] { event_of(event).wait(); });
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex /*index*/) const override {
    return translated([&] { return event_of(from).elapsed_ms(event_of(to)); });
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(c10::GetAllocator(kType))->recordStream(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override { device_at(0); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return index < device_count(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange_device(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(index);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  c10::Device getDeviceFromPtr(void* /*data*/) const override { return {kType, current_device()}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

// torch.Event() drops `interprocess` before anybody could see it: it is looked for beside the event it makes.
newfunc make_event_of_torch = nullptr;

PyObject* make_event(PyTypeObject* type, PyObject* positional, PyObject* named) {
  PyObject* const made = make_event_of_torch(type, positional, named);
  PyObject* const asked = named == nullptr ? nullptr : PyDict_GetItemString(named, "interprocess");
  if (made == nullptr || asked == nullptr || PyObject_IsTrue(asked) != 1) return made;
  if (reinterpret_cast<THPEvent*>(made)->event.device_type() != kType) return made;
  Py_DECREF(made);
  PyErr_SetString(PyExc_NotImplementedError, "events of heddle do not cross processes");
  return nullptr;
}

void refuse_events_between_processes() {
  make_event_of_torch = std::exchange(THPEventType.tp_new, make_event);
  PyType_Modified(&THPEventType);
}

}  // namespace

void register_hooks() {
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::setHostAllocator(kType, &pinned_memory());
  refuse_events_between_processes();
}

}  // namespace heddle::torch_backend
