// request_queue.cpp: the public face of batch/requests/request_queue.h, its limits and its metrics.
#include "batch/requests/request_queue.h"
#include "batch/requests/request_rows.h"

#include "api/batching.h"
#include "api/internals.h"

namespace heddle {
namespace {

[[noreturn]] void refuse_limit(const std::string& what) { throw Error(ErrorCode::invalid, what); }

TimePoint deadline_of(const Timeout& timeout) { return to_deadline(timeout).when(); }

batch::Request to_batch(const RequestQueue::Request& r) {
  return {r.payload, r.group, r.rows, r.cost, r.priority, deadline_of(r.timeout)};
}

std::vector<batch::Request> to_batch(std::span<const RequestQueue::Request> requests) {
  std::vector<batch::Request> converted;
  converted.reserve(requests.size());
  for (const RequestQueue::Request& r : requests) converted.push_back(to_batch(r));
  return converted;
}

Distribution distribution(const batch::Histogram& h) {
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return {h.count(), seconds(h.sum()), seconds(h.percentile(0.5)), seconds(h.percentile(0.95)),
          seconds(h.percentile(0.99))};
}

}  // namespace

batch::Limits to_batch(const BatchLimits& limits) {
  if (limits.max_batch < 1) refuse_limit(text("max_batch is ", limits.max_batch, "; it must be at least 1"));
  if (limits.max_cost < 0) refuse_limit(text("max_cost is ", limits.max_cost, "; 0 means no limit"));
  if (limits.max_wait.count() < 0 || limits.aging.count() < 0)
    refuse_limit("max_wait and aging must not be negative");
  if (limits.capacity < 1) refuse_limit("capacity must be at least 1");
  int64_t before = 0;
  for (const int64_t rows : limits.preferred) {
    if (rows <= before || rows > limits.max_batch) {
      refuse_limit(text("preferred sizes must ascend from 1 to max_batch (", limits.max_batch, "); ", rows,
                        " does not"));
    }
    before = rows;
  }
  batch::Limits l;
  l.max_rows = limits.max_batch;
  l.max_cost = limits.max_cost;
  l.cost_kind = limits.padded_cost ? batch::CostKind::padded : batch::CostKind::sum;
  l.max_wait = limits.max_wait;
  l.aging = limits.aging;
  l.preferred_rows = limits.preferred;
  return l;
}

batch::QueueOptions to_batch(const BatchLimits& limits, int workers, const Timeout& hang_after,
                             bool replace_hung) {
  if (workers < 1) refuse_limit(text("workers is ", workers, "; it must be at least 1"));
  return {to_batch(limits), workers, limits.capacity, hang_after.value_or(Duration::max()), replace_hung};
}

batch::Padding checked(batch::Padding padding) {
  check(batch::RequestRows::check(padding));
  return padding;
}

BatchLimits to_public(const batch::Limits& l, size_t capacity) {
  BatchLimits limits;
  limits.max_batch = l.max_rows;
  limits.max_cost = l.max_cost;
  limits.padded_cost = l.cost_kind == batch::CostKind::padded;
  limits.max_wait = l.max_wait;
  limits.aging = l.aging;
  limits.preferred = l.preferred_rows;
  limits.capacity = capacity;
  return limits;
}

BatchMetrics to_public(const batch::QueueMetrics& m) {
  BatchMetrics out;
  out.depth = m.depth;
  out.depth_rows = static_cast<uint64_t>(m.depth_rows);
  out.capacity = m.capacity;
  out.running = static_cast<uint64_t>(m.running);
  out.submitted = m.submitted;
  out.rejected = m.rejected;
  out.expired = m.expired;
  out.cancelled = m.cancelled;
  out.refused = m.refused;
  out.batches = m.batches;
  out.failed_batches = m.failed_batches;
  out.hung_batches = m.hung_batches;
  out.rows = m.rows;
  out.occupancy = m.occupancy;
  out.wait = distribution(m.wait);
  out.total = distribution(m.total);
  out.form = distribution(m.form);
  out.run = distribution(m.run);
  out.scatter = distribution(m.scatter);
  size_t used = m.batches_by_rows.size();
  while (used > 0 && m.batches_by_rows[used - 1] == 0) --used;
  for (size_t i = 0; i < used; ++i) out.batch_sizes.emplace_back(int64_t{1} << i, m.batches_by_rows[i]);
  return out;
}

BatchHealth to_public(const batch::QueueHealth& h) {
  BatchHealth health{BatchHealth::State::ok, h.reason, h.serving, h.hung, h.restarts};
  if (h.closed) {
    health.state = BatchHealth::State::closed;
  } else if (h.serving == 0) {
    health.state = BatchHealth::State::unavailable;
  } else if (h.draining) {
    health.state = BatchHealth::State::draining;
  } else if (h.serving < h.workers) {
    health.state = BatchHealth::State::degraded;
  }
  return health;
}

namespace {

RequestQueue::Owed to_public(batch::Owed owed) {
  if (!owed) return nullptr;
  const auto kept = std::make_shared<batch::Owed>(std::move(owed));
  return {kept, &kept->payloads()};
}

}  // namespace

struct RequestQueue::Rep {
  explicit Rep(const Options& o)
      : queue(to_batch(o.limits, o.workers, o.hang_after, o.replace_hung)),
        rows(checked({o.pad, o.buckets, o.cut})) {}
  batch::RequestQueue queue;
  batch::RequestRows rows;
};

RequestQueue::RequestQueue(const Options& options) : rep_(std::make_unique<Rep>(options)) {}
RequestQueue::~RequestQueue() = default;

RequestQueue::Described RequestQueue::describe(std::span<const int64_t> kinds,
                                               std::span<const Shape> arrays) const {
  const batch::RequestRows::Described described = take(rep_->rows.describe(kinds, arrays));
  return {described.rows, described.length, described.group};
}
uint64_t RequestQueue::group(std::span<const int64_t> key) const {
  return rep_->rows.group({key.begin(), key.end()});
}
Shape RequestQueue::stacked(std::span<const Shape> arrays, int64_t longest) const {
  return rep_->rows.stacked(arrays, longest);
}

std::vector<uint64_t> RequestQueue::submit(std::span<const Request> requests, Timeout room) {
  std::vector<uint64_t> ids(requests.size());
  check(rep_->queue.submit(to_batch(requests), ids, to_deadline(room)));
  return ids;
}

bool RequestQueue::try_submit(std::span<const Request> requests, std::span<uint64_t> ids, uint64_t seeker) {
  if (requests.size() == 1) {
    const batch::Request one = to_batch(requests[0]);
    return take(rep_->queue.try_submit({&one, 1}, ids, seeker));
  }
  return take(rep_->queue.try_submit(to_batch(requests), ids, seeker));
}

uint64_t RequestQueue::seek_room(size_t wanted, std::function<void()> then) {
  return rep_->queue.seek_room(wanted, std::move(then));
}
void RequestQueue::leave_room(uint64_t seeker) { rep_->queue.leave_room(seeker); }
RequestQueue::Owed RequestQueue::cancel(uint64_t id) { return to_public(rep_->queue.cancel(id)); }
void RequestQueue::await_due() { check(rep_->queue.await_due(Deadline::never())); }

std::optional<RequestQueue::Work> RequestQueue::try_take() {
  std::optional<batch::Work> work = rep_->queue.try_take();
  if (!work) return std::nullopt;
  return Work{work->ticket, std::move(work->batch), to_public(std::move(work->expired))};
}

void RequestQueue::formed(uint64_t ticket) { rep_->queue.formed(ticket); }
RequestQueue::Owed RequestQueue::ran(uint64_t ticket) { return to_public(rep_->queue.ran(ticket)); }
bool RequestQueue::finish(uint64_t ticket, bool failed, std::chrono::nanoseconds linger) {
  return rep_->queue.finish(ticket, failed, linger);
}
void RequestQueue::told(uint64_t ticket) { rep_->queue.told(ticket); }
RequestQueue::Owed RequestQueue::abandon(uint64_t ticket) { return to_public(rep_->queue.abandon(ticket)); }

RequestQueue::Care RequestQueue::care() {
  batch::Care care = rep_->queue.care(Deadline::never());
  return {to_public(std::move(care.expired)), std::move(care.hung), care.closed};
}

RequestQueue::Hang RequestQueue::hang(uint64_t ticket) {
  batch::Hang hang = rep_->queue.hang(ticket);
  return {to_public(std::move(hang.owed)), hang.replace};
}
RequestQueue::Owed RequestQueue::lost_worker(const std::string& why) {
  return to_public(rep_->queue.lost_worker(why));
}
bool RequestQueue::worker_died(const std::string& why) { return rep_->queue.worker_died(why); }
BatchHealth RequestQueue::health() const { return to_public(rep_->queue.health()); }
void RequestQueue::drain(Timeout timeout) { check(rep_->queue.drain(to_deadline(timeout))); }
RequestQueue::Owed RequestQueue::close() { return to_public(rep_->queue.close()); }
bool RequestQueue::closed() const { return rep_->queue.closed(); }

void RequestQueue::set_limits(const BatchLimits& limits) {
  rep_->queue.set_limits(to_batch(limits));
  rep_->queue.set_capacity(limits.capacity);
}
BatchLimits RequestQueue::limits() const {
  return to_public(rep_->queue.limits(), rep_->queue.metrics().capacity);
}
BatchMetrics RequestQueue::metrics() const { return to_public(rep_->queue.metrics()); }

std::string BatchMetrics::prometheus(const std::string& queue_name) const {
  std::string label = "queue=\"";
  for (const char c : queue_name) {
    if (c == '"' || c == '\\') label += '\\';
    c == '\n' ? label += "\\n" : label += c;
  }
  label += "\"";
  std::string out;
  const auto one = [&](const char* name, const char* type, auto value) {
    out +=
        text("# TYPE heddle_batch_", name, " ", type, "\nheddle_batch_", name, "{", label, "} ", value, "\n");
  };
  one("depth", "gauge", depth);
  one("depth_rows", "gauge", depth_rows);
  one("capacity", "gauge", capacity);
  one("running", "gauge", running);
  one("occupancy", "gauge", occupancy);
  one("submitted_total", "counter", submitted);
  one("rejected_total", "counter", rejected);
  one("expired_total", "counter", expired);
  one("cancelled_total", "counter", cancelled);
  one("refused_total", "counter", refused);
  one("failed_batches_total", "counter", failed_batches);
  one("hung_batches_total", "counter", hung_batches);
  const std::pair<const char*, const Distribution*> times[] = {{"wait_seconds", &wait},
                                                               {"form_seconds", &form},
                                                               {"run_seconds", &run},
                                                               {"scatter_seconds", &scatter},
                                                               {"total_seconds", &total}};
  for (const auto& [name, d] : times) {
    out += text("# TYPE heddle_batch_", name, " summary\n");
    for (const auto& [quantile, value] : {std::pair{"0.5", d->p50}, {"0.95", d->p95}, {"0.99", d->p99}}) {
      out += text("heddle_batch_", name, "{", label, ",quantile=\"", quantile, "\"} ", value, "\n");
    }
    out += text("heddle_batch_", name, "_sum{", label, "} ", d->sum, "\nheddle_batch_", name, "_count{",
                label, "} ", d->count, "\n");
  }
  out += "# TYPE heddle_batch_rows histogram\n";
  uint64_t so_far = 0;
  for (const auto& [up_to, count] : batch_sizes) {
    so_far += count;
    out += text("heddle_batch_rows_bucket{", label, ",le=\"", up_to, "\"} ", so_far, "\n");
  }
  out += text("heddle_batch_rows_bucket{", label, ",le=\"+Inf\"} ", so_far, "\nheddle_batch_rows_sum{", label,
              "} ", rows, "\nheddle_batch_rows_count{", label, "} ", so_far, "\n");
  return out;
}

}  // namespace heddle
