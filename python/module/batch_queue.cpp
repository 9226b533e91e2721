// batch_queue.cpp: the RequestQueue for Python's workers: payloads are Python objects, take() frees the GIL
// while nothing is due.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "gil.h"
#include "options.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

struct Metrics {
  BatchMetrics figures;
  std::string name;
};

nb::list as_list(const std::vector<void*>& payloads) {  // takes over the queue's references
  nb::list list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(payloads.size())));
  for (size_t i = 0; i < payloads.size(); ++i) {
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), static_cast<PyObject*>(payloads[i]));
  }
  return list;
}

PyObject* batching_now = nullptr;  // get() of a ContextVar, made at import and held for ever

class Requests {
 public:
  explicit Requests(const RequestQueue::Options& options) : queue_(options) {}
  ~Requests() { as_list(queue_.close()); }

  // The id, or None when there is no room and `room` is 0.
  nb::object submit(nb::handle payload, uint64_t group, int64_t rows, int64_t cost, int priority,
                    nb::handle timeout, nb::handle room) {
    const RequestQueue::Request request{payload.inc_ref().ptr(), group, rows, cost, priority,
                                        to_timeout(timeout)};
    uint64_t id = 0;
    if (!admit({&request, 1}, {&id, 1}, to_timeout(room))) return nb::none();
    return nb::int_(id);
  }

  // parts: [(payload, rows, cost)]. Their ids, or None.
  nb::object submit_parts(const nb::list& parts, uint64_t group, int priority, nb::handle timeout,
                          nb::handle room) {
    std::vector<RequestQueue::Request> requests;
    for (const nb::handle part : parts) {
      requests.push_back({nb::object(part[0]).release().ptr(), group, nb::cast<int64_t>(part[1]),
                          nb::cast<int64_t>(part[2]), priority, to_timeout(timeout)});
    }
    std::vector<uint64_t> ids(requests.size());
    if (!admit(requests, ids, to_timeout(room))) return nb::none();
    return nb::cast(ids);
  }

  // `payload` is the one that was submitted under this id: its reference comes back.
  bool cancel(uint64_t id, nb::handle payload) {
    if (!queue_.cancel(id)) return false;
    payload.dec_ref();
    return true;
  }

  // (ticket, batch, expired), or None once the queue is closed.
  nb::object take() {
    for (;;) {
      const bool open = without_gil([&] {
        try {
          queue_.await_due();
          return true;
        } catch (const Error& e) {
          if (e.code() != ErrorCode::unavailable) throw;
          return false;
        }
      });
      if (!open) return nb::none();
      // What came while this thread waited for the GIL joins the batch.
      if (const auto work = queue_.try_take())
        return nb::make_tuple(work->ticket, as_list(work->batch), as_list(work->expired));
    }
  }

  nb::tuple care() {
    const RequestQueue::Care care = without_gil([&] { return queue_.care(); });
    return nb::make_tuple(as_list(care.expired), care.hung, care.closed);
  }

  void drain(nb::handle timeout) {
    const Timeout limit = to_timeout(timeout);
    without_gil([&] { queue_.drain(limit); });
  }

  RequestQueue& queue() { return queue_; }

 private:
  bool admit(std::span<const RequestQueue::Request> requests, std::span<uint64_t> ids, const Timeout& room) {
    bool admitted = false;
    try {
      admitted = queue_.try_submit(requests, ids);
      if (!admitted && (!room || room->count() > 0)) {
        const std::vector<uint64_t> late = without_gil([&] { return queue_.submit(requests, room); });
        // As many ids as requests. GCC 13 took copy(late.end()) for a write past the one id of submit().
        std::copy_n(late.begin(), ids.size(), ids.begin());
        admitted = true;
      }
    } catch (...) {  // rethrown
      give_back(requests);
      throw;
    }
    if (!admitted) give_back(requests);
    return admitted;
  }
  static void give_back(std::span<const RequestQueue::Request> requests) {
    for (const RequestQueue::Request& r : requests) Py_DECREF(static_cast<PyObject*>(r.payload));
  }

  RequestQueue queue_;
};

std::chrono::nanoseconds seconds(double value, const char* name) {
  if (!(value >= 0)) throw Error(ErrorCode::invalid, std::string(name) + " must be seconds of at least 0");
  constexpr double kCentury = 3e9;
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(value, kCentury) * 1e9));
}

BatchLimits to_limits(int64_t max_batch, int64_t max_cost, bool padded_cost, double max_wait, double aging,
                      std::vector<int64_t> preferred, size_t capacity) {
  BatchLimits limits;
  limits.max_batch = max_batch;
  limits.max_cost = max_cost;
  limits.padded_cost = padded_cost;
  limits.max_wait = seconds(max_wait, "max_wait");
  limits.aging = seconds(aging, "aging");
  limits.preferred = std::move(preferred);
  limits.capacity = capacity;
  return limits;
}

nb::dict as_dict(const Distribution& d) {
  nb::dict dict;
  dict["count"] = d.count;
  dict["mean"] = d.count == 0 ? 0.0 : d.sum / static_cast<double>(d.count);
  dict["p50"] = d.p50;
  dict["p95"] = d.p95;
  dict["p99"] = d.p99;
  return dict;
}

template <auto Member>
auto figure() {
  return [](const Metrics& m) { return m.figures.*Member; };
}
template <auto Member>
auto times() {
  return [](const Metrics& m) { return as_dict(m.figures.*Member); };
}

void bind_metrics(nb::module_& m) {
  nb::class_<Metrics>(m, "BatchMetrics")
      .def_prop_ro("depth", figure<&BatchMetrics::depth>())
      .def_prop_ro("depth_rows", figure<&BatchMetrics::depth_rows>())
      .def_prop_ro("capacity", figure<&BatchMetrics::capacity>())
      .def_prop_ro("running", figure<&BatchMetrics::running>())
      .def_prop_ro("submitted", figure<&BatchMetrics::submitted>())
      .def_prop_ro("rejected", figure<&BatchMetrics::rejected>())
      .def_prop_ro("expired", figure<&BatchMetrics::expired>())
      .def_prop_ro("cancelled", figure<&BatchMetrics::cancelled>())
      .def_prop_ro("refused", figure<&BatchMetrics::refused>())
      .def_prop_ro("batches", figure<&BatchMetrics::batches>())
      .def_prop_ro("failed_batches", figure<&BatchMetrics::failed_batches>())
      .def_prop_ro("hung_batches", figure<&BatchMetrics::hung_batches>())
      .def_prop_ro("rows", figure<&BatchMetrics::rows>())
      .def_prop_ro("occupancy", figure<&BatchMetrics::occupancy>())
      .def_prop_ro("batch_sizes",
                   [](const Metrics& metrics) {
                     nb::dict sizes;
                     for (const auto& [rows, batches] : metrics.figures.batch_sizes)
                       sizes[nb::int_(rows)] = batches;
                     return sizes;
                   })
      .def_prop_ro("wait", times<&BatchMetrics::wait>())
      .def_prop_ro("form", times<&BatchMetrics::form>())
      .def_prop_ro("run", times<&BatchMetrics::run>())
      .def_prop_ro("scatter", times<&BatchMetrics::scatter>())
      .def_prop_ro("total", times<&BatchMetrics::total>())
      .def("prometheus", [](const Metrics& metrics) { return metrics.figures.prometheus(metrics.name); });
}

}  // namespace

nb::object current_batching() {
  // PyContextVar_Get is not part of the stable ABI.
  nb::object batching = nb::steal(PyObject_CallNoArgs(batching_now));
  if (!batching.is_valid()) throw nb::python_error();
  return batching.is_none() ? nb::object() : batching;
}

void bind_batch_queue(nb::module_& m) {
  const nb::object variable = nb::module_::import_("contextvars")
                                  .attr("ContextVar")("heddle.batch_inference", "default"_a = nb::none());
  m.attr("batching") = variable;
  batching_now = nb::object(variable.attr("get")).release().ptr();
  bind_metrics(m);
  nb::class_<BatchLimits>(m, "BatchLimits")
      .def_ro("max_batch", &BatchLimits::max_batch)
      .def_ro("max_cost", &BatchLimits::max_cost)
      .def_ro("padded_cost", &BatchLimits::padded_cost)
      .def_prop_ro("max_wait",
                   [](const BatchLimits& l) { return std::chrono::duration<double>(l.max_wait).count(); })
      .def_prop_ro("aging",
                   [](const BatchLimits& l) { return std::chrono::duration<double>(l.aging).count(); })
      .def_ro("preferred", &BatchLimits::preferred)
      .def_ro("capacity", &BatchLimits::capacity);
  m.def("batch_limits", to_limits, "max_batch"_a, "max_cost"_a, "padded_cost"_a, "max_wait"_a, "aging"_a,
        "preferred"_a, "capacity"_a);
  nb::class_<Requests>(m, "Requests")
      .def(
          "__init__",
          [](Requests* self, const BatchLimits& limits, int workers, nb::handle hang_after) {
            new (self) Requests({limits, workers, to_timeout(hang_after)});
          },
          "limits"_a, "workers"_a, "hang_after"_a.none())
      .def("submit", &Requests::submit, "payload"_a, "group"_a, "rows"_a, "cost"_a, "priority"_a,
           "timeout"_a.none(), "room"_a.none())
      .def("submit_parts", &Requests::submit_parts, "parts"_a, "group"_a, "priority"_a, "timeout"_a.none(),
           "room"_a.none())
      .def("cancel", &Requests::cancel, "id"_a, "payload"_a)
      .def("take", &Requests::take)
      .def("formed", [](Requests& r, uint64_t ticket) { r.queue().formed(ticket); })
      .def("ran", [](Requests& r, uint64_t ticket) { return r.queue().ran(ticket); })
      .def("finish",
           [](Requests& r, uint64_t ticket, bool failed, bool lingers) {
             r.queue().finish(ticket, failed, lingers ? std::chrono::seconds(1) : std::chrono::seconds(0));
           })
      .def("told", [](Requests& r, uint64_t ticket) { r.queue().told(ticket); })
      .def("abandon", [](Requests& r, uint64_t ticket) { return r.queue().abandon(ticket); })
      .def("care", &Requests::care)
      .def("refuse",
           [](Requests& r, const std::string& why) {
             return as_list(r.queue().refuse(ErrorCode::unavailable, why));
           })
      .def("accept", [](Requests& r) { r.queue().accept(); })
      .def("drain", &Requests::drain, "timeout"_a.none())
      .def("close", [](Requests& r) { return as_list(r.queue().close()); })
      .def_prop_ro("closed", [](Requests& r) { return r.queue().closed(); })
      .def("set_limits", [](Requests& r, const BatchLimits& limits) { r.queue().set_limits(limits); })
      .def("limits", [](Requests& r) { return r.queue().limits(); })
      .def("metrics",
           [](Requests& r, const std::string& name) { return Metrics{r.queue().metrics(), name}; });
}

}  // namespace heddle::python
