// batch_queue.cpp: the RequestQueue for Python's workers: payloads are Python objects, take() frees the GIL
// while nothing is due.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <atomic>

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

// Requests that a thread answers: `with owed as jobs:` counts them as under way until it ends. It holds the
// queue's references to them, and the queue.
class Owed {
 public:
  Owed(nb::object requests, std::vector<RequestQueue::Owed> held)
      : requests_(std::move(requests)), held_(std::move(held)) {
    for (const RequestQueue::Owed& each : held_) jobs_.extend(as_list(*each));
  }
  nb::list jobs() const { return jobs_; }
  void end() {
    held_.clear();
    jobs_ = nb::list();
  }

 private:
  nb::object requests_;
  std::vector<RequestQueue::Owed> held_;
  nb::list jobs_;
};

PyObject* batching_now = nullptr;  // get() of a ContextVar, made at import and held for ever

// A request of more rows than a batch, and its parts: the last answer joins all of them.
struct Whole {
  nb::object target, join;
  nb::list results;
  std::atomic<size_t> missing{0};
};
class Part {
 public:
  Part(std::shared_ptr<Whole> whole, size_t number, nb::object payload, int64_t rows)
      : payload_(std::move(payload)), rows_(rows), whole_(std::move(whole)), number_(number) {}
  const nb::object& payload() const { return payload_; }
  int64_t rows() const { return rows_; }
  nb::object length() const { return whole_->target.attr("length"); }
  nb::object begin() const { return whole_->target.attr("begin")(); }
  void fail(nb::handle error, nb::handle mail) const { whole_->target.attr("fail")(error, mail); }
  void give(nb::handle result, nb::handle mail) const {
    whole_->results[number_] = result;
    if (whole_->missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return;  // the last sees all results
    nb::object joined;
    try {
      joined = whole_->join(whole_->results);
    } catch (nb::python_error& error) {  // results of unequal shapes: the request's own failure
      if (!error.matches(PyExc_Exception)) throw;
      fail(error.value(), mail);
      return;
    }
    whole_->target.attr("give")(joined, mail);
  }

 private:
  nb::object payload_;
  int64_t rows_;
  std::shared_ptr<Whole> whole_;  // attached to the interpreter, all of it; each writes a result of its own
  size_t number_;
};

Shape to_extents(nb::handle shape) {
  Shape extents(nb::len(shape));
  for (size_t i = 0; i < extents.size(); ++i) extents[i] = nb::cast<int64_t>(shape[i]);
  return extents;
}

std::vector<Shape> to_shapes(nb::handle shapes) {
  std::vector<Shape> list;
  for (const nb::handle shape : shapes) list.push_back(to_extents(shape));
  return list;
}

class Requests {
 public:
  explicit Requests(const RequestQueue::Options& options)
      : queue_(options), max_batch_(options.limits.max_batch), costs_(options.limits.max_cost != 0) {}
  ~Requests() {
    if (const RequestQueue::Owed waited = queue_.close()) as_list(*waited);
  }

  // (rows, length, group) of a request with arrays of these shapes. `kind`: a hashable that has to be equal.
  nb::tuple describe(nb::handle kind, nb::handle shapes) {
    const int64_t number = number_of(kind);
    const RequestQueue::Described d = queue_.describe({&number, 1}, to_shapes(shapes));
    return nb::make_tuple(d.rows, d.length, d.group);
  }
  uint64_t group(const std::vector<int64_t>& key) const { return queue_.group(key); }
  nb::tuple stacked(nb::handle shapes, int64_t longest) const {
    return nb::tuple(nb::cast(queue_.stacked(to_shapes(shapes), longest)));
  }

  // A target has begin(), give() and fail(), and its payload, rows and length. `how` (rows.Rows) slices and
  // joins requests of more rows than a batch, and knows costs. The ids; waits for room.
  nb::tuple submit(nb::handle target, nb::handle how, uint64_t group, int64_t rows, int priority,
                   nb::handle timeout, nb::handle room) {
    Admission admission(*this, target, how, group, rows, priority, timeout);
    const Timeout limit = to_timeout(room);
    if (!queue_.try_submit(admission.requests(), admission.ids())) {
      const std::vector<uint64_t> late =
          without_gil([&] { return queue_.submit(admission.requests(), limit); });
      std::copy_n(late.begin(), admission.ids().size(), admission.ids().begin());
    }
    return admission.admitted();
  }
  // None where there is no room: without waiting. `seeker`: of seek_room().
  nb::object try_submit(nb::handle target, nb::handle how, uint64_t group, int64_t rows, int priority,
                        nb::handle timeout, uint64_t seeker) {
    Admission admission(*this, target, how, group, rows, priority, timeout);
    if (!queue_.try_submit(admission.requests(), admission.ids(), seeker)) return nb::none();
    return admission.admitted();
  }
  uint64_t seek_room(int64_t rows, const nb::object& then) {
    const int64_t most = max_batch_.load(std::memory_order_relaxed);
    const auto parts = static_cast<size_t>((rows + most - 1) / most);
    return queue_.seek_room(parts, [then = Callback(then, "room in a batch queue")] { then(); });
  }

  // Takes what of a request still waits out of the queue: as many jobs as ids, if nothing had been taken.
  Owed withdraw(const std::vector<uint64_t>& ids) {
    std::vector<RequestQueue::Owed> withdrawn;
    for (const uint64_t id : ids) {
      if (RequestQueue::Owed part = queue_.cancel(id)) withdrawn.push_back(std::move(part));
    }
    return {nb::find(this), std::move(withdrawn)};
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
      if (auto work = queue_.try_take())
        return nb::make_tuple(work->ticket, as_list(work->batch), owed(std::move(work->expired)));
    }
  }

  nb::tuple care() {
    RequestQueue::Care care = without_gil([&] { return queue_.care(); });
    return nb::make_tuple(owed(std::move(care.expired)), care.hung, care.closed);
  }

  // (to be replaced, its batch and as jobs what waited), or None: it came back meanwhile.
  nb::object hang(uint64_t ticket) {
    RequestQueue::Hang hang = queue_.hang(ticket);
    if (!hang.owed) return nb::none();
    return nb::make_tuple(hang.replace, owed(std::move(hang.owed)));
  }
  nb::object owed(RequestQueue::Owed some) {  // or None
    if (!some) return nb::none();
    std::vector<RequestQueue::Owed> held;
    held.push_back(std::move(some));
    return nb::cast(Owed(nb::find(this), std::move(held)));
  }

  void drain(nb::handle timeout) {
    const Timeout limit = to_timeout(timeout);
    without_gil([&] { queue_.drain(limit); });
  }

  void set_limits(std::optional<int64_t> max_batch, nb::handle max_wait, std::optional<int64_t> max_cost,
                  std::optional<std::vector<int64_t>> preferred, std::optional<size_t> capacity);

  RequestQueue& queue() { return queue_; }

 private:
  // A request, or its parts, on the way into the queue; gives the references back where it is not taken.
  struct Admission {
    Admission(Requests& owner, nb::handle target, nb::handle how, uint64_t group, int64_t rows, int priority,
              nb::handle timeout)
        : limit_(to_timeout(timeout)) {
      if (rows <= owner.max_batch_.load(std::memory_order_relaxed)) {
        const int64_t cost = owner.cost_of(how, target);
        one_ = {target.inc_ref().ptr(), group, rows, cost, priority, limit_};
      } else {
        split(owner, target, how, group, rows, priority);
        ids_.resize(parts_.size());
      }
    }
    ~Admission() {
      if (admitted_) return;
      for (const RequestQueue::Request& r : requests()) Py_DECREF(static_cast<PyObject*>(r.payload));
    }
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    std::span<const RequestQueue::Request> requests() const {
      return parts_.empty() ? std::span(&one_, 1) : parts_;
    }
    std::span<uint64_t> ids() { return parts_.empty() ? std::span(&id_, 1) : ids_; }
    nb::tuple admitted() {
      admitted_ = true;
      nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(ids().size())));
      Py_ssize_t next = 0;
      for (const uint64_t id : ids()) PyTuple_SetItem(tuple.ptr(), next++, PyLong_FromUnsignedLongLong(id));
      return tuple;
    }

   private:
    void split(Requests& owner, nb::handle target, nb::handle how, uint64_t group, int64_t rows,
               int priority) {
      const int64_t most = owner.max_batch_.load(std::memory_order_relaxed);
      const auto whole = std::make_shared<Whole>();
      whole->target = nb::borrow(target);
      whole->join = how.attr("join");
      const nb::object payload = target.attr("payload");
      std::vector<nb::object> pieces;
      std::vector<RequestQueue::Request> parts;
      for (int64_t begin = 0; begin < rows; begin += most) {
        const int64_t end = std::min(begin + most, rows);
        nb::object slice = how.attr("slice")(payload, begin, end);
        pieces.push_back(nb::cast(Part(whole, pieces.size(), std::move(slice), end - begin)));
        parts.push_back({nullptr, group, end - begin, owner.cost_of(how, pieces.back()), priority, limit_});
        whole->results.append(nb::none());
      }
      whole->missing = pieces.size();
      for (size_t i = 0; i < pieces.size(); ++i) parts[i].payload = pieces[i].release().ptr();
      parts_ = std::move(parts);
    }

    const Timeout limit_;
    RequestQueue::Request one_;  // where there are no parts: nothing is allocated
    uint64_t id_ = 0;
    std::vector<RequestQueue::Request> parts_;
    std::vector<uint64_t> ids_;
    bool admitted_ = false;
  };

  int64_t cost_of(nb::handle how, nb::handle job) const {
    return costs_.load(std::memory_order_relaxed) ? nb::cast<int64_t>(how.attr("cost_of")(job)) : 0;
  }
  int64_t number_of(nb::handle kind) {
    const nb::ft_lock_guard lock(mutex_);
    if (PyObject* const known = PyDict_GetItemWithError(kinds_.ptr(), kind.ptr())) {
      return PyLong_AsLongLong(known);
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    if (kinds_.size() >= kKindsKept) kinds_.clear();  // numbers are never used twice
    kinds_[kind] = ++kinds_made_;
    return kinds_made_;
  }

  static constexpr size_t kKindsKept = 4096;
  RequestQueue queue_;
  nb::ft_mutex mutex_;              // of kinds, and of a change of limits
  std::atomic<int64_t> max_batch_;  // a setting, relaxed, as the next
  std::atomic<bool> costs_;
  nb::dict kinds_;
  int64_t kinds_made_ = 0;
};

std::chrono::nanoseconds seconds(double value, const char* name) {
  if (!(value >= 0)) throw Error(ErrorCode::invalid, std::string(name) + " must be seconds of at least 0");
  constexpr double kCentury = 3e9;
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(value, kCentury) * 1e9));
}

void Requests::set_limits(std::optional<int64_t> max_batch, nb::handle max_wait,
                          std::optional<int64_t> max_cost, std::optional<std::vector<int64_t>> preferred,
                          std::optional<size_t> capacity) {
  const nb::ft_lock_guard lock(mutex_);
  BatchLimits limits = queue_.limits();
  limits.max_batch = max_batch.value_or(limits.max_batch);
  limits.max_cost = max_cost.value_or(limits.max_cost);
  if (!max_wait.is_none()) limits.max_wait = seconds(nb::cast<double>(max_wait), "max_wait");
  if (preferred) limits.preferred = std::move(*preferred);
  limits.capacity = capacity.value_or(limits.capacity);
  queue_.set_limits(limits);
  max_batch_.store(limits.max_batch, std::memory_order_relaxed);
  costs_.store(limits.max_cost != 0, std::memory_order_relaxed);
}

void make_requests(Requests* self, int64_t max_batch, int64_t max_cost, bool padded_cost, double max_wait,
                   double aging, std::vector<int64_t> preferred, size_t capacity, int workers,
                   nb::handle hang_after, bool replace_hung, bool pad, std::vector<int64_t> buckets,
                   bool cut) {
  const BatchLimits limits{.max_batch = max_batch,
                           .max_cost = max_cost,
                           .padded_cost = padded_cost,
                           .max_wait = seconds(max_wait, "max_wait"),
                           .aging = seconds(aging, "aging"),
                           .preferred = std::move(preferred),
                           .capacity = capacity};
  new (self) Requests({limits, workers, to_timeout(hang_after), replace_hung, pad, std::move(buckets), cut});
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
  nb::class_<BatchHealth>(m, "Health")
      .def_prop_ro("status",
                   [](const BatchHealth& h) {
                     static constexpr const char* kStates[] = {"ok", "degraded", "unavailable", "draining",
                                                               "closed"};
                     return kStates[static_cast<int>(h.state)];
                   })
      .def_ro("reason", &BatchHealth::reason)
      .def_ro("workers", &BatchHealth::workers)
      .def_ro("hung", &BatchHealth::hung)
      .def_ro("restarts", &BatchHealth::restarts);
  nb::class_<Part>(m, "Part")
      .def_prop_ro("payload", &Part::payload)
      .def_prop_ro("rows", &Part::rows)
      .def_prop_ro("length", &Part::length)
      .def("begin", &Part::begin)
      .def("give", &Part::give, "result"_a.none(), "mail"_a)
      .def("fail", &Part::fail, "error"_a, "mail"_a);
  nb::class_<Owed>(m, "Owed").def("__enter__", &Owed::jobs).def("__exit__", [](Owed& owed, const nb::args&) {
    owed.end();
  });
  nb::class_<Requests>(m, "Requests")
      .def("__init__", make_requests, "max_batch"_a, "max_cost"_a, "padded_cost"_a, "max_wait"_a, "aging"_a,
           "preferred"_a, "capacity"_a, "workers"_a, "hang_after"_a.none(), "replace_hung"_a, "pad"_a,
           "buckets"_a, "cut"_a)
      .def("describe", &Requests::describe, "kind"_a, "shapes"_a)
      .def("group", &Requests::group, "key"_a)
      .def("stacked", &Requests::stacked, "shapes"_a, "longest"_a)
      .def("submit", &Requests::submit, "target"_a, "how"_a, "group"_a, "rows"_a, "priority"_a,
           "timeout"_a.none(), "room"_a.none())
      .def("try_submit", &Requests::try_submit, "target"_a, "how"_a, "group"_a, "rows"_a, "priority"_a,
           "timeout"_a.none(), "seeker"_a = 0)
      .def("seek_room", &Requests::seek_room, "rows"_a, "then"_a)
      .def("leave_room", [](Requests& r, uint64_t seeker) { r.queue().leave_room(seeker); })
      .def("withdraw", &Requests::withdraw, "ids"_a)
      .def("take", &Requests::take)
      .def("formed", [](Requests& r, uint64_t ticket) { r.queue().formed(ticket); })
      .def("ran", [](Requests& r, uint64_t ticket) { return r.owed(r.queue().ran(ticket)); })
      .def("finish",
           [](Requests& r, uint64_t ticket, bool failed, bool lingers) {
             return r.queue().finish(ticket, failed,
                                     lingers ? std::chrono::seconds(1) : std::chrono::seconds(0));
           })
      .def("told", [](Requests& r, uint64_t ticket) { r.queue().told(ticket); })
      .def("abandon", [](Requests& r, uint64_t ticket) { return r.owed(r.queue().abandon(ticket)); })
      .def("care", &Requests::care)
      .def("hang", &Requests::hang, "ticket"_a)
      .def("lost_worker",
           [](Requests& r, const std::string& why) { return r.owed(r.queue().lost_worker(why)); })
      .def("worker_died", [](Requests& r, const std::string& why) { return r.queue().worker_died(why); })
      .def("health", [](Requests& r) { return r.queue().health(); })
      .def("drain", &Requests::drain, "timeout"_a.none())
      .def("close", [](Requests& r) { return r.owed(r.queue().close()); })
      .def_prop_ro("closed", [](Requests& r) { return r.queue().closed(); })
      .def("set_limits", &Requests::set_limits, "max_batch"_a.none(), "max_wait"_a.none(),
           "max_cost"_a.none(), "preferred"_a.none(), "capacity"_a.none())
      .def("metrics",
           [](Requests& r, const std::string& name) { return Metrics{r.queue().metrics(), name}; });
}

}  // namespace heddle::python
