// module.cpp: heddle.torch._C: what torch.heddle needs beyond what PyTorch's generic device API reaches.
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "activities.h"
#include "cpu_operators.h"
#include "dlpack.h"
#include "eager.h"
#include "fallback.h"
#include "generator.h"
#include "hooks.h"
#include "lowering.h"
#include "process_end.h"
#include "register.h"
#include "seen_weights.h"
#include "storage.h"
#include "weight_casts.h"

namespace py = pybind11;

namespace heddle::torch_backend {
namespace {

py::dict memory_stats(c10::DeviceIndex index) {
  const MemoryStats stats = translated([&] { return device_at(index).stats().memory; });
  py::dict named;
  named["allocated"] = stats.allocated;
  named["reserved"] = stats.reserved;
  named["peak_allocated"] = stats.peak_allocated;
  named["peak_reserved"] = stats.peak_reserved;
  named["limit"] = stats.limit;
  named["recommended_max"] = stats.recommended_max;
  named["hits"] = stats.hits;
  named["misses"] = stats.misses;
  named["frees"] = stats.frees;
  return named;
}

py::dict cache_stats() {
  const auto [stats, graphs] = eager_cache_stats();
  py::dict named;
  named["hits"] = stats.hits;
  named["misses"] = stats.misses;
  named["failures"] = stats.failures;
  named["evictions"] = stats.evictions;
  named["count"] = stats.count;
  named["graphs"] = graphs.misses;  // built since the process began
  return named;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  register_hooks();
  register_activities();
  register_operators();
  bind_lowering(m);
  bind_seen_weights(m);
  bind_dlpack(m);
  m.def("before_exit", &before_exit);
  m.def("count_caller", &count_caller);
  m.def("device_count", &device_count);
  m.def("device_names", &device_names);
  m.def("current_device", &current_device);
  m.def("set_device", &exchange_device);
  m.def("exchange_device", &exchange_device);
  m.def(
      "synchronize", [](c10::DeviceIndex index) { translated([&] { synchronize_device(index); }); },
      py::arg("index") = -1, py::call_guard<FreeGil>());
  m.def("stream_id",
        [](c10::DeviceIndex index) { return translated([&] { return current_stream_number(index); }); });
  m.def("native_stream", [](c10::DeviceIndex index) {
    return translated([&] { return reinterpret_cast<int64_t>(native_handle_of(current_name(index))); });
  });
  m.def("release_current_thread_slot", &release_thread_slot);
  m.def("memory_stats", &memory_stats);
  m.def(
      "empty_cache", [](c10::DeviceIndex index) { translated([&] { device_at(index).empty_cache(); }); },
      py::call_guard<FreeGil>());
  m.def("set_memory_fraction", [](double fraction, c10::DeviceIndex index) {
    translated([&] { device_at(index).set_memory_fraction(fraction); });
  });
  m.def("reset_peak_memory",
        [](c10::DeviceIndex index) { translated([&] { device_at(index).reset_peak_memory(); }); });
  m.def("default_generator", [](c10::DeviceIndex index) {
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(index)));
  });
  m.def("operators", &registered_overloads);
  m.def("operators_on_cpu", &overloads_on_cpu);
  m.def("operators_unknown", &unknown_overloads);
  m.def("fallback", &allow_cpu_fallback);
  m.def("fallbacks", &cpu_fallbacks);
  m.def("cpu_operators", &cpu_operator_calls);
  m.def("cache_stats", &cache_stats);
  m.def("clear_cache", &clear_eager_cache);
  m.def("weight_casts", &weight_casts);
  m.def("writes", [](const at::Tensor& tensor) -> std::optional<uint64_t> {
    const Memory* const memory = memory_of(tensor.storage());
    return memory == nullptr ? std::nullopt : std::optional(memory->writes.load(std::memory_order_acquire));
  });
}

}  // namespace heddle::torch_backend
