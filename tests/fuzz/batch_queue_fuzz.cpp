// A history of a BatchQueue that the bytes decide: submit, cancel, wait, close and the rest in any order,
// while its function is held or goes on. Each request has one answer, which is its own.
#include <memory>

#include "base/atomic.h"
#include "base/sync.h"
#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

constexpr size_t kRequestsMost = 40;
constexpr float kBad = 1000;  // a row of this makes the function throw

// What the queue's function waits for, and what it has seen.
struct Door {
  Guarded<bool, Rank::kModel> open{true};
  void set(bool is_open) {
    auto state = open.lock();
    *state = is_open;
    state.notify_all();
  }
  void pass() {
    auto state = open.lock();
    state.wait_until(Deadline::never(), [&] { return *state; });
  }
};

// Twice each row.
std::vector<Tensor> doubled(std::span<const Tensor> stacked) {
  const auto values = stacked[0].values<float>();
  std::vector<float> twice;
  for (const float value : values) {
    if (value == kBad) throw Error(ErrorCode::invalid, "a row is bad");
    twice.push_back(2 * value);
  }
  return {Tensor::of<float>(stacked[0].shape(), std::span<const float>(twice))};
}

struct Request {
  BatchFuture future;
  float value;
  int64_t rows;
  bool late, cancelled = false;
  std::shared_ptr<Atomic<int>> told;
};

class History {
 public:
  explicit History(Bytes bytes) : bytes_(bytes) {
    BatchQueueOptions options;
    options.limits = some_limits();
    options.workers = 1 + static_cast<int>(bytes_.below(2));
    options.full_wait = std::chrono::nanoseconds(0);
    options.retry = retry_ = bytes_.flag();
    if (bytes_.flag()) options.pad = 0.0;
    queue_.emplace(
        [door = door_](std::span<const Tensor> stacked) {
          door->pass();
          return doubled(stacked);
        },
        options);
  }

  void run() {
    while (!bytes_.over() && requests_.size() < kRequestsMost) step();
    door_->set(true);
    if (bytes_.flag()) refusal_of([&] { queue_->drain(); });
    close();
    for (const Request& request : requests_) finished(request);
    const BatchMetrics metrics = queue_->metrics();
    must(metrics.depth == 0 && metrics.running == 0, "a closed queue holds nothing");
    queue_.reset();
    for (const Request& request : requests_)
      must(request.told->load_acquire() == 1, "an answer is told once");
  }

 private:
  BatchLimits some_limits() {
    BatchLimits limits;
    limits.max_batch = 1 + static_cast<int64_t>(bytes_.below(6));
    limits.max_cost = static_cast<int64_t>(bytes_.below(3)) * 40;
    limits.max_wait = std::chrono::microseconds(bytes_.below(3) * 20);
    limits.capacity = 1 + bytes_.below(12);
    return limits;
  }

  void step() {
    switch (bytes_.below(11)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return submit();
      case 4:
        return door_->set(bytes_.flag());
      case 5:
        return cancel();
      case 6:
        return look();
      case 7:
        refusal_of([&] { queue_->set_limits(some_limits()); });
        return;
      case 8:
        (void)queue_->health();
        (void)queue_->metrics();
        return;
      case 9:
        if (bytes_.below(4) != 0) return;
        refusal_of([&] { queue_->drain(std::chrono::nanoseconds(0)); });
        draining_ = true;
        return;
      default:
        if (bytes_.below(8) != 0) return;
        door_->set(true);
        return close();
    }
  }

  void submit() {
    Request one;
    one.rows = 1 + static_cast<int64_t>(bytes_.below(9));  // more than a batch has, too
    one.value = bytes_.below(6) == 5 ? kBad : static_cast<float>(requests_.size() + 1);
    one.told = std::make_shared<Atomic<int>>(0);
    Timeout timeout;
    if (bytes_.below(4) == 3) timeout = std::chrono::nanoseconds(bytes_.number());
    one.late = timeout.has_value();
    const bool wrong = bytes_.below(8) == 7;
    Tensor rows = Tensor::zeros(DType::f32, wrong ? Shape{} : Shape{one.rows, 2});
    if (!wrong) {
      auto* values = static_cast<float*>(rows.mutable_data());
      std::fill(values, values + one.rows * 2, one.value);
    }
    const auto refused = refusal_of(
        [&] { one.future = queue_->submit({rows}, timeout, static_cast<int>(bytes_.below(3)) - 1); });
    must(!wrong || refused, "a request without rows is refused");
    if (refused) {
      must(*refused != ErrorCode::unavailable || closed_ || draining_, "an open queue is available");
      return;
    }
    must(!closed_, "a closed queue takes nothing");
    one.future.then([told = one.told](const BatchFuture&) { told->add_acq_rel(1); });
    requests_.push_back(std::move(one));
  }

  void cancel() {
    if (requests_.empty()) return;
    Request& one = requests_[bytes_.below(requests_.size())];
    if (one.future.cancel()) {
      must(!one.cancelled, "a request is cancelled once");
      one.cancelled = true;
      must(one.future.ready(), "what was cancelled is answered");
    }
  }

  void look() {
    if (requests_.empty()) return;
    const Request& one = requests_[bytes_.below(requests_.size())];
    if (one.future.wait_for(std::chrono::nanoseconds(0))) {
      must(one.future.ready(), "what was ready stays so");
      finished(one);
    }
  }

  // Its answer, the same however often it is asked for.
  void finished(const Request& one) {
    must(one.future.ready(), "each request is answered");
    std::vector<Tensor> results;
    const auto error = refusal_of([&] { results = one.future.get(); });
    if (!error) {
      must(!one.cancelled, "what was cancelled has no results");
      must(one.value != kBad, "a bad row has no results");
      must(results.size() == 1 && results[0].shape() == Shape{one.rows, 2}, "as many rows as were asked for");
      for (const float value : results[0].values<float>()) must(value == 2 * one.value, "its own rows");
      return;
    }
    must((*error == ErrorCode::cancelled) == one.cancelled, "cancelled: on request, and then always");
    must(*error != ErrorCode::deadline || one.late, "late: with a deadline only");
    must(*error != ErrorCode::unavailable || closed_, "unavailable: when closed only");
    must(*error != ErrorCode::invalid || one.value == kBad || !retry_, "a bad row fails alone, with retry");
  }

  void close() {
    queue_->close();
    closed_ = true;
  }

  Bytes bytes_;
  std::shared_ptr<Door> door_ = std::make_shared<Door>();
  bool retry_ = false, closed_ = false, draining_ = false;
  std::vector<Request> requests_;
  std::optional<BatchQueue> queue_;
};

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::History({data, size}).run();
  return 0;
}
