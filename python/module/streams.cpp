// streams.cpp: Device, Stream, Event, StreamPool, guards and the calls of the process's device.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "gil.h"
#include "options.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

// `with stream(s):` entered and left on one thread.
class StreamContext {
 public:
  explicit StreamContext(Stream stream) : stream_(std::move(stream)) {}
  Stream enter() {
    if (guard_)
      throw Error(ErrorCode::invalid, "this stream context is already entered; make one per with statement");
    guard_ = std::make_unique<StreamGuard>(stream_);
    return stream_;
  }
  void leave() { guard_.reset(); }

 private:
  Stream stream_;
  std::unique_ptr<StreamGuard> guard_;
};

class ExclusiveContext {
 public:
  ExclusiveContext(Device device, Timeout timeout) : device_(std::move(device)), timeout_(timeout) {}
  void enter() {
    auto held = without_gil([&] { return std::make_unique<Exclusive>(device_, timeout_); });
    held_.swap(held);
  }
  void leave() {
    std::unique_ptr<Exclusive> held = std::exchange(held_, nullptr);
    without_gil([&] { held.reset(); });
  }

 private:
  Device device_;
  Timeout timeout_;
  std::unique_ptr<Exclusive> held_;
};

Exhaustion exhaustion_of(const std::string& word) {
  if (word == "share") return Exhaustion::share;
  if (word == "wait") return Exhaustion::wait;
  if (word == "fail") return Exhaustion::fail;
  throw Error(ErrorCode::invalid, "exhaustion must be 'share', 'wait' or 'fail', not '" + word + "'");
}

DeviceOptions to_options(int threads, int streams, const std::string& exhaustion, double stream_wait,
                         uint64_t executable_bytes, double memory_fraction, int in_flight, int slices,
                         const std::string& numa) {
  DeviceOptions options;
  options.threads = threads;
  options.streams = streams;
  options.exhaustion = exhaustion_of(exhaustion);
  options.stream_wait = std::chrono::nanoseconds(static_cast<int64_t>(stream_wait * 1e9));
  options.executable_bytes = executable_bytes;
  options.memory_fraction = memory_fraction;
  options.in_flight = in_flight;
  options.slices = slices;
  if (numa != "auto" && numa != "off")
    throw Error(ErrorCode::invalid, "numa must be 'auto' or 'off', not '" + numa + "'");
  options.numa_copies = numa == "auto";
  return options;
}

nb::dict stats(const Device& device) {
  const DeviceStats s = device.stats();
  nb::dict d;
  d["allocated"] = s.memory.allocated;
  d["reserved"] = s.memory.reserved;
  d["peak_allocated"] = s.memory.peak_allocated;
  d["peak_reserved"] = s.memory.peak_reserved;
  d["memory_limit"] = s.memory.limit;
  d["recommended_max_memory"] = s.memory.recommended_max;
  d["allocator_hits"] = s.memory.hits;
  d["allocator_misses"] = s.memory.misses;
  d["allocator_frees"] = s.memory.frees;
  d["calls"] = s.calls;
  d["compiles"] = s.compiles;
  d["cache_hits"] = s.cache_hits;
  d["evictions"] = s.evictions;
  d["cached_bytes"] = s.cached_bytes;
  d["waits_for_lane"] = s.waits_for_lane;
  d["longest_wait_for_lane"] = std::chrono::duration<double>(s.longest_wait_for_lane).count();
  d["streams_leased"] = s.streams_leased;
  d["streams_leased_max"] = s.streams_leased_max;
  d["streams_shared"] = s.streams_shared;
  return d;
}

void on_memory_pressure(const Device& device, nb::object callback) {
  device.on_memory_pressure(Callback(callback, "heddle memory pressure callback"));
}

std::vector<std::pair<std::string, std::string>> pairs(const std::vector<DeviceFact>& facts) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const DeviceFact& fact : facts) out.emplace_back(fact.name, fact.value);
  return out;
}

void bind_device(nb::module_& m) {
  nb::class_<Device>(m, "Device")
      .def(nb::init<std::string_view>(), "name"_a = "")
      .def_static(
          "open",
          [](const std::string& name, int threads, int streams, const std::string& exhaustion,
             double stream_wait, uint64_t executable_bytes, double memory_fraction, int in_flight, int slices,
             const std::string& numa) {
            const auto options = to_options(threads, streams, exhaustion, stream_wait, executable_bytes,
                                            memory_fraction, in_flight, slices, numa);
            return without_gil([&] { return Device::open(name, options); });
          },
          "name"_a = "", nb::kw_only(), "threads"_a = 0, "streams"_a = 0, "exhaustion"_a = "share",
          "stream_wait"_a = 30.0, "executable_bytes"_a = uint64_t{512} << 20, "memory_fraction"_a = 1.0,
          "in_flight"_a = 0, "slices"_a = 0, "numa"_a = "auto")
      .def_static(
          "configure",
          [](const std::string& name, int threads, int streams, const std::string& exhaustion,
             double stream_wait, uint64_t executable_bytes, double memory_fraction, int in_flight, int slices,
             const std::string& numa) {
            Device::configure(name, to_options(threads, streams, exhaustion, stream_wait, executable_bytes,
                                               memory_fraction, in_flight, slices, numa));
          },
          "name"_a = "", nb::kw_only(), "threads"_a = 0, "streams"_a = 0, "exhaustion"_a = "share",
          "stream_wait"_a = 30.0, "executable_bytes"_a = uint64_t{512} << 20, "memory_fraction"_a = 1.0,
          "in_flight"_a = 0, "slices"_a = 0, "numa"_a = "auto")
      .def_static("names", &Device::names)
      .def_static("missing", [] { return pairs(Device::missing()); })
      .def_prop_ro("name", &Device::name)
      .def_prop_ro("description", &Device::description)
      .def_prop_ro("facts", [](const Device& d) { return pairs(d.facts()); })
      .def_prop_ro("defences", [](const Device& d) { return pairs(d.defences()); })
      .def_prop_ro("threads", &Device::threads)
      .def_prop_ro("in_flight", &Device::in_flight)
      .def_prop_ro("slices", &Device::slices)
      .def_prop_ro("streams", &Device::streams)
      .def(
          "synchronize",
          [](const Device& d, nb::handle t) {
            const auto timeout = to_timeout(t);
            without_gil([&] { d.synchronize(timeout); });
          },
          "timeout"_a = nb::none())
      .def("empty_cache", [](const Device& d) { without_gil([&] { d.empty_cache(); }); })
      .def("set_memory_fraction", &Device::set_memory_fraction, "fraction"_a)
      .def("reset_peak_memory", &Device::reset_peak_memory)
      .def("stats", stats)
      .def("on_memory_pressure", on_memory_pressure, "callback"_a)
      .def(
          "close",
          [](const Device& d, nb::handle t) {
            const auto timeout = to_timeout(t);
            without_gil([&] { d.close(timeout); });
          },
          "timeout"_a = nb::none());
}

void bind_events(nb::module_& m) {
  nb::class_<Event>(m, "Event")
      .def(nb::init<>())
      .def(
          "record", [](Event& e, const Stream& s) { e = without_gil([&] { return s.record(); }); },
          "stream"_a, nb::lock_self())
      .def(
          "query", [](const Event& e) { return without_gil([own = e] { return own.query(); }); },
          nb::lock_self())
      .def(
          "wait",
          [](const Event& e, nb::handle t) {
            const auto timeout = to_timeout(t);
            without_gil([own = e, timeout] { own.wait(timeout); });  // another thread may record it anew
          },
          "timeout"_a = nb::none(), nb::lock_self())
      .def("elapsed_time", &Event::elapsed_ms, nb::arg("later").lock(), nb::lock_self());
}

void bind_stream(nb::module_& m) {
  nb::class_<Stream>(m, "Stream")
      .def(
          "__init__",
          [](Stream* self, nb::handle d) {
            const Device device = to_device(d);
            new (self) Stream(without_gil([&] { return Stream(device); }));
          },
          "device"_a = nb::none())
      .def_static(
          "from_native",
          [](uintptr_t handle, nb::handle d) {
            const Device device = to_device(d);
            return without_gil([&] { return Stream::from_native(reinterpret_cast<void*>(handle), device); });
          },
          "handle"_a, "device"_a = nb::none())
      .def_prop_ro("id", &Stream::id)
      .def_prop_ro("native_handle",
                   [](const Stream& s) {
                     return reinterpret_cast<uintptr_t>(without_gil([&] { return s.native_handle(); }));
                   })
      .def_prop_ro("device", &Stream::device)
      .def("record_event", [](const Stream& s) { return without_gil([&] { return s.record(); }); })
      .def(
          "wait_event", [](const Stream& s, const Event& e) { without_gil([&s, own = e] { s.wait(own); }); },
          nb::arg("event").lock())
      .def(
          "wait_stream",
          [](const Stream& s, const Stream& other) { without_gil([&] { s.wait(other.record()); }); },
          "stream"_a)
      .def("query", [](const Stream& s) { return without_gil([&] { return s.query(); }); })
      .def(
          "synchronize",
          [](const Stream& s, nb::handle t) {
            const auto timeout = to_timeout(t);
            without_gil([&] { s.synchronize(timeout); });
          },
          "timeout"_a = nb::none())
      .def("__repr__", [](const Stream& s) {
        return "heddle.Stream(id=" + std::to_string(s.id()) + ", device='" + s.device().name() + "')";
      });
}

}  // namespace

void bind_streams(nb::module_& m) {
  bind_device(m);
  bind_events(m);
  bind_stream(m);
  nb::class_<StreamContext>(m, "StreamContext")
      .def(nb::init<Stream>())
      .def("__enter__", &StreamContext::enter, nb::lock_self())
      .def("__exit__", [](StreamContext& c, const nb::args&) { c.leave(); }, nb::lock_self());
  nb::class_<ExclusiveContext>(m, "ExclusiveContext")
      .def(
          "__init__",
          [](ExclusiveContext* self, const Device& d, nb::handle t) {
            new (self) ExclusiveContext(d, to_timeout(t));
          },
          "device"_a, "timeout"_a = nb::none())
      .def("__enter__", &ExclusiveContext::enter, nb::lock_self())
      .def("__exit__", [](ExclusiveContext& c, const nb::args&) { c.leave(); }, nb::lock_self());
  nb::class_<StreamPool>(m, "StreamPool")
      .def(
          "__init__", [](StreamPool* self, nb::handle d) { new (self) StreamPool(to_device(d)); },
          "device"_a = nb::none())
      .def(
          "acquire",
          [](const StreamPool& p, nb::handle t) {
            const auto timeout = to_timeout(t);
            return without_gil([&] { return p.acquire(timeout); });
          },
          "timeout"_a = nb::none())
      .def("try_acquire", &StreamPool::try_acquire)
      .def_prop_ro("size", &StreamPool::size);
  m.def(
      "current_stream", [](const Device& d) { return without_gil([&] { return current_stream(d); }); },
      "device"_a);
  m.def("default_stream", [](const Device& d) { return default_stream(d); }, "device"_a);
  m.def("release_current_thread_slot", [](const Device& d) { release_current_thread_slot(d); }, "device"_a);
}

}  // namespace heddle::python
