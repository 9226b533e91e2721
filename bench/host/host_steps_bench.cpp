// Question  How near are MiniLM's linear layers and attention to the processor's peak, on one thread and two?
//           And what does a submission cost that has nothing to compute?
// Peer      The peak is a product of [64, 512] and [512, 512], which fits the second-level cache, in the same
//           run.
// Read as   Microseconds per step, billions of operations a second, and their ratio to the peak per thread: 1
//           is the multipliers' own speed. Identity: ns per submit.
// Checked   Each graph's values against the reference once, and samples of them after every round.
#include <cmath>
#include <memory>
#include <utility>

#include "bench/base/rounds.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/close_fixture.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 11;

ir::Tensor waves(const ir::Extents& extents, double scale) {
  ir::Tensor t = ir::Tensor::zeros(ir::DType::kF32, extents);
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, scale * std::sin(0.37 * static_cast<double>(i % 9973)));
  return t;
}

// A graph with one input, compiled, with a queue and an arena of its own.
class Prepared {
 public:
  Prepared(device::Device& device, ir::Graph graph, const ir::Tensor& x)
      : queue_(require(device.make_queue(NoLocksHeld()))), x_(x) {
    wanted_ = require(ir::evaluate(graph, {&x, 1}))[0];
    made_ = ir::Tensor::zeros(ir::DType::kF32, wanted_.extents());
    const auto module =
        require(device.load(std::move(graph), {}, device::plain_source(device), NoLocksHeld()));
    program_ = require(module->compile({{x.extents()}}, NoLocksHeld()));
    const Ref<device::Buffer> arena = require(device::arena_for(device, *program_));
    const auto view = [](ir::Tensor& t) {
      return device::View::contiguous(static_cast<std::byte*>(t.mutable_data()), t.dtype(), t.extents());
    };
    list_.run(program_, arena, {view(x_)}, {view(made_)});
    run();
    for (int64_t i = 0; i < wanted_.elements(); ++i) {
      if (right(i)) continue;
      std::fprintf(stderr, "element %lld is wrong\n", static_cast<long long>(i));
      std::exit(1);
    }
  }

  void run() { static_cast<void>(queue_->submit(list_, ++value_, NoLocksHeld())); }
  bool sample_right() const {
    return queue_->timeline()->done(value_) && right(static_cast<int64_t>(value_) % wanted_.elements());
  }

 private:
  bool right(int64_t i) const { return test::is_close(made_.get(i), wanted_.get(i), {1e-4, 1e-4}); }

  std::unique_ptr<device::Queue> queue_;
  ir::Tensor x_, wanted_, made_;
  Ref<const device::Program> program_;
  device::CommandList list_;
  uint64_t value_ = 0;
};

struct Subject {
  std::string name;
  double operations;  // of one run
  ir::Graph graph;
  ir::Tensor x;
};

Subject linear(int64_t rows, int64_t k, int64_t n, const char* activation) {
  ir::Builder b;
  const ir::Tensor x = waves({rows, k}, 1);
  const ir::ValueId in = b.input("x", x.type());
  b.output(require(b.node("Linear", {in, b.constant(waves({k, n}, 0.05)), b.constant(waves({n}, 1))},
                          {{"activation", std::string(activation)}})));
  return {text("linear ", rows, "x", k, "x", n, " ", activation), 2.0 * static_cast<double>(rows * k * n),
          require(b.take()), x};
}

Subject attention(int64_t seq) {
  ir::Builder b;
  const ir::Tensor x = waves({1, seq, 3 * 384}, 1);
  b.output(require(
      b.node("Attention", {b.input("x", x.type())}, {{"num_heads", int64_t{12}}, {"packed", int64_t{1}}})));
  return {text("attention ", seq), 4.0 * static_cast<double>(seq * seq * 384), require(b.take()), x};
}

Subject identity() {
  ir::Builder b;
  const ir::Tensor x = waves({4}, 1);
  b.output(require(b.node("Identity", {b.input("x", x.type())})));
  return {"identity", 0, require(b.take()), x};
}

int run(int argc, char** argv) {
  std::vector<Subject> subjects = {linear(64, 512, 512, ""), identity()};
  for (const int64_t seq : {32, 128}) {
    for (const auto& [k, n, activation] : {std::tuple<int64_t, int64_t, const char*>{384, 1152, ""},
                                           {384, 384, ""},
                                           {384, 1536, "gelu"},
                                           {1536, 384, ""}}) {
      subjects.push_back(linear(seq, k, n, activation));
    }
    subjects.push_back(attention(seq));
  }
  std::vector<Ref<device::Device>> devices;
  std::vector<std::unique_ptr<Prepared>> prepared;
  std::vector<Case> cases;
  for (const int threads : {1, 2}) {
    devices.push_back(require(host::make_host_device({.threads = threads})));
    for (const Subject& s : subjects) {
      prepared.push_back(std::make_unique<Prepared>(*devices.back(), s.graph, s.x));
      Prepared* p = prepared.back().get();
      const auto repeat =
          static_cast<uint64_t>(s.operations == 0 ? 20'000 : std::max(3.0, 4e8 / s.operations));
      cases.push_back(
          {text(s.name, threads == 1 ? ", 1 thread" : ", 2 threads"), 1, repeat, [p, repeat](int) {
             for (uint64_t i = 0; i < repeat; ++i) p->run();
             return p->sample_right() ? repeat : 0;
           }});
    }
  }
  const std::vector<Figure> figures = compare(cases, kRounds);
  const double peak = subjects[0].operations / figures[0].wall_ns.median;
  std::printf("%-40s %12s %10s %8s\n", "", "us (median)", "Gop/s", "of peak");
  for (size_t i = 0; i < figures.size(); ++i) {
    const double rate = subjects[i % subjects.size()].operations / figures[i].wall_ns.median;
    const double threads = i < subjects.size() ? 1 : 2;
    std::printf("%-40s %12.2f %10.1f %8.2f\n", figures[i].name.c_str(), figures[i].wall_ns.median / 1e3, rate,
                rate / peak / threads);
  }
  write_json(argc, argv, "host_steps", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
