// soak_work.cpp: the operations of a soak. Inputs of the small models differ from operation to operation, so
// that the answer to another one, or an old one, is a wrong value.
#include <algorithm>
#include <iterator>
#include <thread>

#include "soak_fixture.h"

namespace stress {
namespace {

using heddle::CallOptions;
using heddle::DType;
using heddle::ErrorCode;
using heddle::GraphBuilder;
using heddle::Model;

constexpr int64_t kWidth = 8, kMaxRows = 12, kTable = 10;
constexpr int kNetworkRows = 8;  // of a batch
constexpr Codes kDeadline = code_bit(ErrorCode::deadline), kCancelled = code_bit(ErrorCode::cancelled);

// y = 2 x + 1, exact for the integers below.
Model affine_of(const heddle::Device& device, bool coalesce) {
  GraphBuilder graph("affine");
  const auto x = graph.input("x", DType::f32, {"batch", kWidth});
  const auto two = graph.constant(Tensor::of<float>({}, {2.0F}));
  const auto one = graph.constant(Tensor::of<float>({}, {1.0F}));
  graph.output(graph.add("Add", {graph.add("Mul", {x, two}), one}), "y");
  heddle::ModelOptions options;
  options.device = device;
  options.coalesce = coalesce;
  return graph.build(options);
}

// Rows of a table: an index out of range is the data's mistake.
Model lookup_of(const heddle::Device& device) {
  GraphBuilder graph("lookup");
  std::vector<float> table(kTable * kWidth);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const auto rows = graph.constant(Tensor::of<float>({kTable, kWidth}, std::span<const float>(table)));
  const auto index = graph.input("index", DType::i64, {"batch"});
  graph.output(graph.add("Gather", {rows, index}, {{"axis", int64_t{0}}}), "y");
  heddle::ModelOptions options;
  options.device = device;
  return graph.build(options);
}

heddle::BatchQueueOptions queue_options() {
  heddle::BatchQueueOptions options;
  options.limits.max_batch = 16;
  options.workers = 2;
  return options;
}

// Rows of integers that no other operation has (modulo 2^20), and what the affine model makes of them.
struct Rows {
  int64_t count;
  float first;
  Tensor tensor() const {
    std::vector<float> values(static_cast<size_t>(count * kWidth));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    return Tensor::of<float>({count, kWidth}, std::span<const float>(values));
  }
  bool give(const Tensor& y, int times = 1) const {
    if (y.shape() != heddle::Shape{count, kWidth}) return false;
    const auto values = y.values<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      float want = first + static_cast<float>(i);
      for (int k = 0; k < times; ++k) want = 2 * want + 1;
      if (values[i] != want) return false;
    }
    return true;
  }
};

struct Kept {
  Rows rows;
  Tensor result;
};

// One thread's operations.
struct Worker {
  const World& world;
  Ledger& ledger;
  Round& round;
  size_t thread;
  Random& random;
  std::vector<Kept> kept = {};  // results that this thread looks at again, later

  Rows rows() {
    return {1 + static_cast<int64_t>(random.below(kMaxRows)),
            static_cast<float>((round.next++ * 101) % (1 << 20))};
  }
  CallOptions options() const {
    CallOptions made;
    made.timeout = world.patience;
    return made;
  }
  // 1 us to 65 ms, each doubling as often: on fast and on slow machines some are met, and some are not.
  std::chrono::microseconds short_time() const {
    return std::chrono::microseconds(int64_t{1} << random.below(17));
  }
  const Model& model() { return random.one_in(4) ? world.apart : world.affine; }

  void call() {
    answered(ledger, "call", world.may, [&] {
      const Rows x = rows();
      const Tensor y = model()({x.tensor()}, options()).at(0);
      if (kept.size() < 8) kept.push_back({x, y});
      return x.give(y);
    });
  }
  void look_again() {
    if (kept.empty()) return call();
    answered(ledger, "a result that was kept", kNoError, [&] {
      const Kept old = std::move(kept.back());
      kept.pop_back();
      return old.rows.give(old.result);
    });
  }
  void call_network() {
    if (world.networks.empty()) return call();
    const Case& network = world.networks[random.below(world.networks.size())];
    answered(ledger, "call of a network", world.may,
             [&] { return network.call(random.below(64), options()); });
  }
  void call_with_deadline() {
    answered(ledger, "call with a short deadline", world.may | kDeadline, [&] {
      const Rows x = rows();
      CallOptions made = options();
      made.timeout = short_time();
      return x.give(model()({x.tensor()}, made).at(0));
    });
  }
  void call_withdrawn() {
    answered(ledger, "call that others withdraw", world.may | kCancelled, [&] {
      const Rows x = rows();
      CallOptions made = options();
      made.cancel = round.withdrawable(thread).get_token();
      return x.give(world.affine({x.tensor()}, made).at(0));
    });
  }
  void call_into() {
    answered(ledger, "call into memory of the caller's", world.may, [&] {
      const Rows x = rows();
      CallOptions made = options();
      made.outputs = {Tensor::zeros(DType::f32, {x.count, kWidth})};
      world.affine({x.tensor()}, made);
      return x.give(made.outputs[0]);
    });
  }
  void call_wrong_data() {
    const bool is_bad = random.one_in(2);
    const Codes bad = code_bit(ErrorCode::invalid);
    answered(ledger, is_bad ? "look-up out of range" : "look-up", world.may | (is_bad ? bad : kNoError), [&] {
      const auto index = static_cast<int64_t>(random.below(kTable));
      const Tensor at = Tensor::of<int64_t>({2}, {index, is_bad ? kTable + index : index});
      const Tensor y = world.lookup({at}, options()).at(0);
      const auto values = y.values<float>();
      return !is_bad && values.size() == 2 * kWidth && values[0] == static_cast<float>(index * kWidth) &&
             values[2 * kWidth - 1] == static_cast<float>(index * kWidth + kWidth - 1);
    });
  }
  void submit() {
    const Rows x = rows();
    CallOptions made = options();
    std::stop_source stop;
    const uint64_t kind = random.below(3);
    if (kind == 0) made.timeout = short_time();
    if (kind == 1) made.cancel = stop.get_token();
    const Codes may = world.may | (kind == 0 ? kDeadline : kind == 1 ? kCancelled : kNoError);
    const auto operation = ledger.ask("submission", may);
    try {
      model().submit(std::vector{x.tensor()}, made,
                     [x, operation](const std::vector<Tensor>& results, const std::exception_ptr& error) {
                       error != nullptr ? operation->end(error) : operation->end(x.give(results.at(0)));
                     });
    } catch (const heddle::Error& error) {
      operation->end(error.code(), error.what());
    }
    if (kind == 1) stop.request_stop();
  }
  void ask_queue() {
    const Rows x = rows();
    const uint64_t kind = random.below(4);
    const auto operation = ledger.ask("request of a queue", world.may | (kind == 0 ? kDeadline : kNoError));
    try {
      heddle::Timeout timeout = world.patience;
      if (kind == 0) timeout = short_time();
      const auto answer = const_cast<heddle::BatchQueue&>(world.queue)
                              .submit({x.tensor()}, timeout, static_cast<int>(random.below(3)));
      if (kind == 1 && answer.cancel()) operation->must_end_with(kCancelled);
      const auto end = [x, operation](const heddle::BatchFuture& future) {
        try {
          operation->end(x.give(future.get().at(0)));
        } catch (const heddle::Error& error) {
          operation->end(error.code(), error.what());
        }
      };
      random.one_in(2) ? end(answer) : answer.then(end);
    } catch (const heddle::Error& error) {
      operation->end(error.code(), error.what());
    }
  }
  // The model twice on two streams, with an event between them.
  void chain() {
    answered(ledger, "chain over two streams", world.may, [&] {
      const Rows x = rows();
      const heddle::Shape shape = {x.count, kWidth};
      const heddle::Stream one(world.device), other(world.device);
      std::vector<float> out(static_cast<size_t>(x.count * kWidth));
      const Tensor in = Tensor::empty(DType::f32, shape, world.device);
      one.copy(x.tensor(), in);
      const auto on_stream = [&](const heddle::Stream& stream) {
        CallOptions made = options();
        made.stream = stream;
        return made;
      };
      Tensor middle = world.affine({in}, on_stream(one)).at(0);
      other.wait(one.record());
      const Tensor last = world.affine({middle}, on_stream(other)).at(0);
      middle = Tensor();
      other.copy(last, Tensor::borrow_mutable(out.data(), DType::f32, shape));
      other.synchronize(world.patience);
      return x.give(Tensor::borrow(out.data(), DType::f32, shape), 2);
    });
  }
  void call_on_lease() {
    answered(ledger, "call on the thread's stream", world.may, [&] {
      const Rows x = rows();
      const heddle::StreamGuard guard(heddle::current_stream(world.device));
      const Tensor y = world.affine({x.tensor()}, options()).at(0);
      y.wait(world.patience);
      const bool right = x.give(y);
      if (random.one_in(2)) heddle::release_current_thread_slot(world.device);
      return right;
    });
  }
  void compile() {
    answered(ledger, "compilation of a shape", world.may, [&] {
      const std::vector<heddle::Shape> shapes = {{1 + static_cast<int64_t>(random.below(200)), kWidth}};
      world.apart.compile(shapes);
      return true;
    });
  }
  void model_life() {
    answered(ledger, "life of a model", world.may, [&] {
      const Model model = affine_of(world.device, random.one_in(2));
      const Rows x = rows();
      const bool right = x.give(model({x.tensor()}, options()).at(0));
      if (random.one_in(2)) model.close();
      return right;
    });
  }
  void housekeeping() {
    answered(ledger, "housekeeping", world.may, [&] {
      if (random.one_in(2)) world.device.empty_cache();
      if (random.one_in(4)) world.device.synchronize(world.patience);
      const heddle::DeviceStats stats = world.device.stats();
      return stats.memory.reserved >= stats.memory.slots;
    });
  }
  void ask_for_too_much() {
    answered(ledger, "more memory than there is", world.may | code_bit(ErrorCode::exhausted), [&] {
      const auto bytes = static_cast<int64_t>(world.device.stats().memory.limit) + 1;
      return !Tensor::empty(DType::u8, {bytes}, world.device);
    });
  }
  void alone() {
    answered(ledger, "a hold of the device", world.may | kDeadline, [&] {
      const heddle::Exclusive hold(world.device, std::chrono::milliseconds(200));
      return true;
    });
  }

  // How often of a hundred.
  struct Choice {
    uint64_t share;
    void (Worker::*step)();
  };
  void one() {
    static constexpr Choice kChoices[] = {
        {24, &Worker::call},
        {8, &Worker::look_again},
        {4, &Worker::call_network},
        {8, &Worker::call_with_deadline},
        {6, &Worker::call_withdrawn},
        {4, &Worker::call_into},
        {8, &Worker::call_wrong_data},
        {13, &Worker::submit},
        {11, &Worker::ask_queue},
        {4, &Worker::chain},
        {4, &Worker::call_on_lease},
        {1, &Worker::compile},
        {1, &Worker::model_life},
        {2, &Worker::housekeeping},
        {1, &Worker::ask_for_too_much},
        {1, &Worker::alone},
    };
    uint64_t at = random.below(100);
    const Choice* choice = kChoices;
    while (at >= choice->share) at -= (choice++)->share;
    (this->*choice->step)();
  }
};

}  // namespace

World::World(heddle::Device its_device, bool with_networks)
    : device(std::move(its_device)),
      affine(affine_of(device, true)),
      apart(affine_of(device, false)),
      lookup(lookup_of(device)),
      queue(affine, queue_options()) {
  if (!with_networks) return;
  heddle::ModelOptions options;
  options.device = device;
  options.max_batch = kNetworkRows;
  networks.push_back(mlp_with(options));
  networks.push_back(conv1d(device, false));
  // What oneDNN keeps of each shape is there before the first look at memory.
  const int64_t width = networks[0].inputs[0][0].shape()[1];
  for (int64_t count = 1; count <= kNetworkRows; ++count) {
    const std::vector<heddle::Shape> shapes = {{count, width}};
    networks[0].model.compile(shapes);
  }
  for (const Case& network : networks) {
    for (size_t i = 0; i < network.inputs.size(); ++i) network.call(i);
  }
}

std::stop_source Round::withdrawable(size_t thread) {
  const std::lock_guard lock(mutex_);
  return sources_.insert_or_assign(thread, std::stop_source()).first->second;
}

void Round::withdraw_some(Random& random) {
  std::stop_source chosen(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    if (sources_.empty()) return;
    auto at = sources_.begin();
    std::advance(at, static_cast<int64_t>(random.below(sources_.size())));
    chosen = at->second;
  }
  chosen.request_stop();
}

void work(const World& world, Ledger& ledger, Round& round, size_t thread, Random& random, uint64_t count) {
  Worker worker{world, ledger, round, thread, random};
  for (uint64_t i = 0; i < count; ++i) {
    worker.one();
    if (random.one_in(4)) round.withdraw_some(random);
  }
}

}  // namespace stress
