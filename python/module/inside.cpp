// inside.cpp: lock statistics, trace, log, environment, what the ONNX reader takes.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "gil.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

nb::list locks() {
  nb::list list;
  for (const LockStats& lock : lock_stats()) {
    nb::dict d;
    d["name"] = lock.name;
    d["acquisitions"] = lock.acquisitions;
    d["contentions"] = lock.contentions;
    d["longest_wait"] = std::chrono::duration<double>(lock.longest_wait).count();
    list.append(d);
  }
  return list;
}

void log_to(nb::object callback) {
  if (callback.is_none()) {
    set_log({});
    return;
  }
  set_log([call = Callback(callback, "heddle log callback")](LogLevel level, const std::string& message) {
    static constexpr const char* kLevels[] = {"info", "warning", "error"};
    call(kLevels[static_cast<int>(level)], message);
  });
}

}  // namespace

void bind_inside(nb::module_& m) {
  m.def("count_locks", count_locks, "on"_a);
  m.def("lock_stats", locks);
  m.def("reset_lock_stats", reset_lock_stats);
  m.def("start_trace", start_trace, "path"_a);
  m.def("stop_trace", [] { without_gil([] { stop_trace(); }); });
  m.def("set_log", log_to, nb::arg("callback").none());
  m.def("version", version);
  m.def(
      "replay",
      [](uint64_t seed, const std::string& plan) { return without_gil([&] { return replay(seed, plan); }); },
      "seed"_a, "plan"_a);
  m.def("onnx_support", [] {
    const OnnxSupport support = onnx_support();
    return nb::make_tuple(support.oldest_opset, support.newest_opset, support.operators);
  });
  m.def("environment", [] {
    nb::list list;
    for (const EnvironmentVariable& v : environment())
      list.append(nb::make_tuple(v.name, v.meaning, v.value));
    return list;
  });
}

}  // namespace heddle::python
