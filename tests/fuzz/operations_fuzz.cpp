// A history of operations of heddle.h that the bytes decide, on one thread: calls, submissions, streams,
// events, queues, holds and what tells about them, right and wrong in any order. A result is right, each
// submission is answered once, and what is refused is refused in words.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/atomic.h"
#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

constexpr std::chrono::nanoseconds kLong = std::chrono::seconds(20);

Device opened_device() {
  DeviceOptions options;
  options.threads = 1;
  options.streams = 3;
  options.exhaustion = Exhaustion::fail;
  return Device::open("host", options);
}
const std::vector<Device>& two_devices() {
  static const std::vector<Device> devices{opened_device(), opened_device()};
  return devices;
}

struct Answered {
  Atomic<int> times{0};
  Atomic<bool> right{true};
};

class Operations {
 public:
  explicit Operations(Bytes bytes) : bytes_(bytes), model_(made()) {}

  void run() {
    for (int steps = 0; steps < 24 && !bytes_.over(); ++steps) step();
    queue_.reset();
    model_.close();
    must(model_.closed(), "a closed model says so");
    for (const auto& each : submitted_) {
      must(each->times.load_acquire() == 1, "a submission is answered once");
      must(each->right.load_acquire(), "an answer is its own");
    }
  }

 private:
  // y = 2 x + 1, f32[batch, 2].
  Model made() {
    GraphBuilder graph("affine");
    const auto x = graph.input("x", DType::f32, {"batch", 2});
    const auto twice = graph.add("Mul", {x, graph.constant(Tensor::of<float>({1}, {2}))});
    graph.output(graph.add("Add", {twice, graph.constant(Tensor::of<float>({1}, {1}))}), "y");
    ModelOptions options;
    if (bytes_.below(4) == 0) {
      options.devices = two_devices();
    } else {
      options.device = bytes_.below(4) == 0 ? two_devices()[0] : small_device();
    }
    device_ = options.device ? *options.device : two_devices()[0];
    options.coalesce = bytes_.flag();
    options.exact = bytes_.flag();
    options.keep_source = bytes_.flag();
    options.max_batch = 1 + static_cast<int>(bytes_.below(8));
    if (bytes_.flag()) options.latency_bound = std::chrono::milliseconds(1);
    return graph.build(options);
  }

  void step() {
    switch (bytes_.below(20)) {
      case 0:
      case 1:
      case 2:
        return call();
      case 3:
      case 4:
        return submit();
      case 5:
        return together();
      case 6:
        return brief();
      case 7:
        return compile();
      case 8:
        return stream_work();
      case 9:
        return lease();
      case 10:
        return event_work();
      case 11:
        return hold();
      case 12:
        return queue_work();
      case 13:
        return ask_model();
      case 14:
        return ask_device();
      case 15:
        return change_device();
      case 16:
        return cache_work();
      case 17:
        return ask_library();
      case 18:
        return open();
      default:
        if (bytes_.below(4) == 0) model_.close();
    }
  }

  Tensor rows() {
    const auto count = static_cast<int64_t>(bytes_.below(6));
    const auto width = static_cast<int64_t>(bytes_.below(16) == 15 ? 3 : 2);
    Tensor x = bytes_.below(8) == 7 ? Tensor::zeros(DType::i64, {count, width})
               : bytes_.flag()      ? Tensor::zeros(DType::f32, {count, width})
                                    : Tensor::empty(DType::f32, {count, width}, device_);
    if (x.dtype() != DType::f32 || x.elements() == 0) return x;
    auto* const to = static_cast<float*>(x.mutable_data());
    for (int64_t i = 0; i < x.elements(); ++i) to[i] = static_cast<float>(++last_);
    return x;
  }
  static bool is_right(const Tensor& x, const Tensor& y) {
    const auto from = x.values<float>(), to = y.values<float>();
    return x.shape() == y.shape() &&
           std::equal(from.begin(), from.end(), to.begin(), [](float a, float b) { return b == 2 * a + 1; });
  }

  CallOptions some_options(const Tensor& x) {
    CallOptions options;
    if (bytes_.below(4) == 0) options.timeout = bytes_.flag() ? kLong : std::chrono::nanoseconds(0);
    if (bytes_.below(4) == 0 && !streams_.empty()) options.stream = streams_[bytes_.below(streams_.size())];
    options.keep_on_device = bytes_.below(4) == 0;
    options.in_slices = bytes_.flag();
    if (bytes_.below(4) == 0) options.outputs = {bytes_.flag() ? x : Tensor::zeros(x.dtype(), x.shape())};
    if (bytes_.below(8) == 0) {
      stop_.emplace();
      options.cancel = stop_->get_token();
      if (bytes_.flag()) stop_->request_stop();
    }
    return options;
  }

  void call() {
    const Tensor x = rows();
    const CallOptions options = some_options(x);
    const Tensor before = x.elements() == 0 ? x : copy_of(x);
    std::vector<Tensor> y;
    if (refusal_of([&] { y = model_({x}, options); })) return;
    must(y.size() == 1 && is_right(before, y[0]), "a call's result is right");
    last_result_ = y[0];
  }
  static Tensor copy_of(const Tensor& x) {
    if (x.dtype() != DType::f32) return x;
    return Tensor::of<float>(x.shape(), x.values<float>());
  }

  void submit() {
    const Tensor x = rows();
    CallOptions options = some_options(x);
    options.outputs = {};
    const auto answered = std::make_shared<Answered>();
    const auto then = [answered, x](std::vector<Tensor> y, const std::exception_ptr& error) {
      if (error == nullptr) answered->right.store_release(y.size() == 1 && is_right(x, y[0]));
      answered->times.add_acq_rel(1);
    };
    if (refusal_of([&] { model_.submit(std::vector{x}, options, then); })) {
      must(answered->times.load_acquire() == 0, "a submission that is refused has no answer");
      return;
    }
    submitted_.push_back(answered);
  }

  void together() {
    std::vector<std::vector<Tensor>> requests;
    for (size_t i = bytes_.below(4); i > 0; --i) requests.push_back({rows()});
    bool formed = false;
    std::vector<Model::Outcome> outcomes;
    const auto refused = refusal_of([&] {
      std::vector<int64_t> first;
      for (size_t i = 0; i < requests.size(); ++i) {
        const std::vector<int64_t> group = model_.group(requests[i]);
        if (i == 0) first = group;
        if (group != first) throw Error(ErrorCode::invalid, "requests of two groups");
      }
      outcomes = model_.run_together(requests, [&] { formed = true; });
    });
    if (refused) return;
    must(outcomes.size() == requests.size(), "each request has an outcome");
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i].error == nullptr)
        must(is_right(requests[i][0], outcomes[i].results.at(0)), "a request's own rows");
    }
  }

  void brief() {
    const Tensor x = rows();
    std::optional<std::vector<Tensor>> y;
    const auto at_most = bytes_.flag() ? kLong : std::chrono::nanoseconds(0);
    if (refusal_of([&] { y = model_.try_brief(std::vector{x}, at_most); })) return;
    if (y) must(is_right(x, y->at(0)), "a brief call's result is right");
  }

  void compile() {
    std::vector<Shape> shapes;
    for (size_t i = bytes_.below(3); i > 0; --i) shapes.push_back({bytes_.number() % 100, bytes_.number()});
    if (bytes_.flag()) shapes = {{1 + static_cast<int64_t>(bytes_.below(4)), 2}};
    refusal_of([&] { model_.compile(shapes); });
    refusal_of([&] { must(!model_.plan(shapes, {1e9, 1e9, 1e9, 1e6, 1e-6}).nodes.empty(), "nodes"); });
  }

  void stream_work() {
    refusal_of([&] {
      const Stream stream = streams_.empty() ? current_stream(device_) : streams_[0];
      const Tensor from = rows(), to = Tensor::empty(from.dtype(), from.shape(), stream.device());
      stream.copy(from, to);
      stream.synchronize(kLong);
      must(stream.query(), "a stream that was waited for has nothing left to do");
      if (from.dtype() == DType::f32) {
        const auto a = from.values<float>(), b = to.values<float>();
        must(std::equal(a.begin(), a.end(), b.begin(), b.end()), "a copy has its source's values");
      }
      to.record_stream(stream);
      must(to.on_host() && to.device() && to.ready(), "a host's tensor");
      to.wait(kLong);
      must(to.to_host().shape() == from.shape() && to.contiguous().is_contiguous(), "the same elements");
      (void)stream.native_handle();
      (void)stream.id();
      if (bytes_.flag()) to.hand_to(nullptr);
      if (bytes_.flag()) to.released_by(nullptr);
    });
  }

  void lease() {
    const StreamPool pool(device_);
    refusal_of([&] {
      switch (bytes_.below(6)) {
        case 0:
          return keep(Stream(device_));
        case 1:
          return keep(pool.acquire(std::chrono::nanoseconds(0)));
        case 2:
          if (auto stream = pool.try_acquire()) keep(*std::move(stream));
          return;
        case 3:
          return release_current_thread_slot(device_);
        case 4:
          if (!streams_.empty()) streams_.pop_back();
          return;
        default:
          return keep(bytes_.flag() ? default_stream(device_) : Stream::from_native(nullptr, device_));
      }
    });
    must(pool.size() == device_.streams(), "a pool has its device's streams");
  }
  void keep(Stream stream) {
    if (streams_.size() < 4) streams_.push_back(std::move(stream));
  }

  void event_work() {
    refusal_of([&] {
      const Stream stream = current_stream(device_);
      const Event event = stream.record();
      if (bytes_.flag()) stream.wait(event);
      if (!streams_.empty()) {
        const StreamGuard guard(streams_[0]);
        must(current_stream(streams_[0].device()).id() == streams_[0].id(), "the guard's stream");
        streams_[0].wait(event);
      }
      event.wait(kLong);
      must(event.query(), "an event that was waited for is over");
      const Event later = bytes_.flag() ? stream.record() : Event();
      must(event.elapsed_ms(later) >= 0, "time goes on");
    });
  }

  void hold() {
    refusal_of([&] {
      const Exclusive alone(device_, bytes_.flag() ? kLong : std::chrono::nanoseconds(0));
      const Tensor x = rows();
      refusal_of([&] { model_({x}); });
      refusal_of([&] { const Exclusive again(device_, std::chrono::nanoseconds(0)); });
    });
  }

  void queue_work() {
    if (queue_ == nullptr || bytes_.below(6) == 0) {
      BatchQueueOptions options;
      options.limits.max_batch = bytes_.number();
      options.limits.capacity = 1 + bytes_.below(8);
      options.full_wait = std::chrono::nanoseconds(0);
      options.workers = static_cast<int>(bytes_.below(4));
      if (bytes_.below(4) == 0) options.pad = 0.0;
      if (bytes_.below(4) == 0) options.warm_up = {rows()};
      options.retry = bytes_.flag();
      refusal_of([&] { queue_ = std::make_unique<BatchQueue>(model_, options); });
      return;
    }
    const Tensor x = rows();
    BatchFuture future;
    const auto refused = refusal_of([&] {
      future = queue_->submit({x}, bytes_.flag() ? Timeout() : kLong, static_cast<int>(bytes_.below(3)));
    });
    if (refused) return;
    if (bytes_.below(8) == 0) (void)future.cancel();
    must(future.wait_for(kLong) && future.ready(), "an answer comes");
    refusal_of([&] { must(is_right(x, future.get().at(0)), "an answer is the request's own"); });
    const BatchMetrics metrics = queue_->metrics();
    must(metrics.prometheus("fuzzed").find("fuzzed") != std::string::npos, "the queue's name");
    (void)queue_->health();
    if (bytes_.below(8) == 0) refusal_of([&] { queue_->set_limits({}); });
    if (bytes_.below(8) == 0) refusal_of([&] { queue_->drain(kLong); });
    if (bytes_.below(8) == 0) queue_->close();
  }

  void ask_model() {
    must(model_.inputs().size() == 1 && model_.outputs().size() == 1, "its ports");
    must(model_.batchable() && model_.why_not_batchable().empty(), "rows are independent");
    must(!model_.explain_coalescing().empty() && !model_.graph().empty(), "words");
    must(!model_.devices().empty() && model_.device().name() == "host", "its devices");
    refusal_of([&] { must(!model_.source_graph().empty(), "the source"); });
    refusal_of([&] { (void)model_.replacements(); });
    (void)model_.coalescing_stats();
    (void)model_.weight_bytes();
    const Tensor x = rows();
    (void)model_.device_of(std::vector{x});
  }

  void ask_device() {
    must(device_.name() == "host" && !device_.description().empty(), "a device has a name");
    (void)device_.facts();
    (void)device_.defences();
    must(device_.threads() >= 1 && device_.in_flight() >= 1 && device_.unified_memory(), "a host");
    must(device_.stats().memory.allocated <= device_.stats().memory.peak_allocated, "a peak is the most");
  }

  void change_device() {
    refusal_of([&] {
      switch (bytes_.below(5)) {
        case 0:
          return device_.empty_cache();
        case 1:
          return device_.reset_peak_memory();
        case 2:
          return device_.synchronize(kLong);
        case 3:
          return synchronize(device_);
        default:
          return device_.set_memory_fraction(static_cast<double>(bytes_.number()));
      }
    });
  }

  void cache_work() {
    OnceCache cache(bytes_.below(3));
    const std::string key(bytes_.words(4));
    const bool fails = bytes_.below(4) == 0;
    for (int i = 0; i < 2; ++i) {
      std::shared_ptr<const void> got;
      const auto refused = refusal_of([&] {
        got = cache.get_or_make(key, [&]() -> std::shared_ptr<const void> {
          if (fails) throw Error(ErrorCode::unsupported, "it cannot be made");
          return std::make_shared<const int>(7);
        });
      });
      must(refused.has_value() == fails && (fails || *static_cast<const int*>(got.get()) == 7), "once made");
    }
    must(cache.stats().misses >= 1, "the first one makes it");
    cache.clear();
  }

  void ask_library() {
    must(!version().empty() && !environment().empty() && !Device::names().empty(), "the library tells");
    (void)Device::missing();
    must(onnx_support().oldest_opset < onnx_support().newest_opset, "opsets");
    count_locks(bytes_.flag());
    (void)lock_stats();
    reset_lock_stats();
    count_locks(false);
  }

  void open() {
    DeviceOptions options;
    options.streams = static_cast<int>(bytes_.number() % 2000);
    options.threads = static_cast<int>(bytes_.number() % 3);
    options.memory_fraction = bytes_.flag() ? 1.0 : static_cast<double>(bytes_.number());
    options.in_flight = static_cast<int>(bytes_.number() % 2000);
    options.slices = static_cast<int>(bytes_.number() % 2000);
    const std::string name = bytes_.flag() ? "host" : std::string(bytes_.words(6));
    refusal_of([&] { Device::configure(name, options); });
    refusal_of([&] {
      if (name != "host") (void)Device(name);
      const Device mine = Device::open(name, options);
      mine.on_memory_pressure([](uint64_t) {});
      mine.close(kLong);
      must(refusal_of([&] { (void)Stream(mine); }).has_value(), "a closed device refuses");
    });
    refusal_of([&] { (void)Device::all(name); });
  }

  Bytes bytes_;
  Device device_ = small_device();
  int last_ = 0;
  Model model_;
  std::vector<Stream> streams_;
  std::vector<std::shared_ptr<Answered>> submitted_;
  std::unique_ptr<BatchQueue> queue_;
  std::optional<std::stop_source> stop_;
  Tensor last_result_;
};

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::Operations({data, size}).run();
  return 0;
}
