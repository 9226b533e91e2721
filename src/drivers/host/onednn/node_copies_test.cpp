#include "drivers/host/onednn/node_copies.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/thread.h"
#include "drivers/host/machine/fake_machine_fixture.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

constexpr int64_t kWeightFloats = 3 << 18;  // 3 MiB: large
constexpr uint64_t kPackedBytes = 3 << 20;

// Counts what is charged, and refuses beyond `limit` bytes.
class ChargedSource final : public device::Source {
 public:
  explicit ChargedSource(uint64_t limit = UINT64_MAX) : limit_(limit) {}
  using Source::allocate;
  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind) override {
    return source_of_tests()->allocate(bytes, kind);
  }
  Result<Ref<const void>> charge(uint64_t bytes) override {
    charges.add_relaxed(1);
    if (charged->load_relaxed() + bytes > limit_) return Status::exhausted("the test gives no more");
    charged->add_relaxed(bytes);
    return Ref<const void>(new char, [bytes, sum = charged](const void* one) {
      delete static_cast<const char*>(one);
      sum->sub_relaxed(bytes);
    });
  }
  Atomic<int> charges{0};
  Ref<Atomic<uint64_t>> charged = std::make_shared<Atomic<uint64_t>>(0);

 private:
  const uint64_t limit_;
};

// A store of `count` large weights, each packed on the first node: 1, 2, .. in every byte.
struct Stored {
  explicit Stored(const FakeMemory& memory, int count = 1, uint64_t limit = UINT64_MAX)
      : root(fake_nodes(memory)), source(std::make_shared<ChargedSource>(limit)) {
    ir::Builder b;
    ir::ValueId y = b.input("x", {ir::DType::kF32, {kWeightFloats}});
    for (int i = 0; i < count; ++i) {
      weights.push_back(ir::Tensor::zeros(ir::DType::kF32, {kWeightFloats}));
      y = *b.node("Add", {y, b.constant(weights.back())});
    }
    b.output(y);
    graph = *b.take();
    const auto nodes = std::make_shared<const Nodes>(nodes_of(root));
    store = std::make_unique<WeightStore>(*make_engine(false), graph, source,
                                          nodes->count() > 1 ? nodes : nullptr);
    machine = nodes;
    fake_core = 0;
    for (int i = 0; i < count; ++i) {
      rooms.push_back(require(store->room(weights[static_cast<size_t>(i)].data(), kPackedBytes)));
      std::memset(rooms.back().get(), i + 1, kPackedBytes);
    }
  }
  // As a thread on `core` reads it.
  const std::byte* read(int core, size_t weight = 0) const {
    fake_core = core;
    const OnNode here(machine.get());
    return rooms[weight].here();
  }
  static bool is_right(const std::byte* data, size_t weight = 0) {
    return std::count(data, data + kPackedBytes, static_cast<std::byte>(weight + 1)) ==
           static_cast<int64_t>(kPackedBytes);
  }

  FakeRoot root;
  Ref<ChargedSource> source;
  std::vector<ir::Tensor> weights;
  ir::Graph graph;
  Ref<const Nodes> machine;
  std::unique_ptr<WeightStore> store;
  std::vector<WeightRoom> rooms;
};

TEST_CASE("threads of one node read one copy, those of another node another, with the same values") {
  for (const int nodes : {2, 4}) {
    Stored f({.nodes = nodes});
    std::set<const std::byte*> copies;
    for (int core = 0; core < 2 * nodes; ++core) {
      const std::byte* const data = f.read(core);
      CHECK(Stored::is_right(data));
      CHECK(data == f.read(core / 2 * 2));
      copies.insert(data);
    }
    CHECK(copies.size() == static_cast<size_t>(nodes));
    CHECK(f.read(0) == f.rooms[0].get());  // packed there
    CHECK(f.source->charged->load_relaxed() == nodes * kPackedBytes);
    CHECK(f.store->describe_copies().starts_with("node 0: 3 MiB packed; node 1: 3 MiB copied"));
  }
}

TEST_CASE("outside a run, and on a processor of no node, what was packed is read") {
  Stored f({.nodes = 2});
  CHECK(f.rooms[0].here() == f.rooms[0].get());
  CHECK(f.read(99) == f.rooms[0].get());
  CHECK(f.read(-1) == f.rooms[0].get());
  CHECK(f.source->charges.load_relaxed() == 1);
}

TEST_CASE("a node's copies are made once however many of its threads come, and all read right values") {
  constexpr int kWeights = 3, kNodes = 4, kThreads = 6 * kNodes;
  Stored f({.nodes = kNodes, .cores_each = 6}, kWeights);
  Atomic<int> wrong{0}, reads{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < 3; ++i) {
      for (size_t weight = 0; weight < kWeights; ++weight) {
        if (!Stored::is_right(f.read(thread, weight), weight)) wrong.add_relaxed(1);
        reads.add_relaxed(1);
      }
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  CHECK(reads.load_relaxed() == kThreads * 3 * kWeights);
  CHECK(f.source->charges.load_relaxed() == kNodes * kWeights);
  CHECK(f.source->charged->load_relaxed() == kNodes * kWeights * kPackedBytes);
  for (size_t weight = 0; weight < kWeights; ++weight) {
    std::set<const std::byte*> copies;
    for (int core = 0; core < kThreads; ++core) copies.insert(f.read(core, weight));
    CHECK(copies.size() == kNodes);
  }
}

TEST_CASE("no copy is made where the weights fit the last cache, or a quarter of the free memory does not") {
  struct Line {
    const char* what;
    FakeMemory memory;
    bool copied;
    const char* said;
  };
  for (const Line& line :
       {Line{"in the cache", {.cache_kib = 3072}, false, "since its last cache has 3 MiB"},
        Line{"a byte too large for it", {.cache_kib = 3071}, true, "3 MiB copied"},
        Line{"no free memory", {.free_kib = 12287}, false, "more than a quarter of the node's free memory"},
        Line{"just enough", {.free_kib = 12288}, true, "3 MiB copied"}}) {
    CAPTURE(line.what);
    Stored f(line.memory);
    CHECK((f.read(2) != f.rooms[0].get()) == line.copied);
    CHECK(f.read(2) == f.read(3));
    CHECK(f.source->charges.load_relaxed() == (line.copied ? 2 : 1));
    CAPTURE(f.store->describe_copies());
    CHECK(f.store->describe_copies().find(line.said) != std::string::npos);
  }
}

TEST_CASE("a memory limit ends the copying, and is not asked again; what was copied is kept") {
  Stored f({.nodes = 2}, 4, 6 * kPackedBytes);
  std::vector<const std::byte*> first;
  for (size_t weight = 0; weight < 4; ++weight) first.push_back(f.read(2, weight));
  for (size_t weight = 0; weight < 4; ++weight) {
    CHECK(Stored::is_right(first[weight], weight));
    CHECK((first[weight] != f.rooms[weight].get()) == (weight < 2));
    CHECK(f.read(3, weight) == first[weight]);
  }
  CHECK(f.source->charges.load_relaxed() == 4 + 2 + 1);
  CHECK(f.store->describe_copies().find("6 MiB copied no more copies") != std::string::npos);
}

TEST_CASE("copies go with their weights, and a machine of one node makes none") {
  auto f = std::make_unique<Stored>(FakeMemory{.nodes = 2});
  const Ref<Atomic<uint64_t>> charged = f->source->charged;
  CHECK(Stored::is_right(f->read(2)));
  CHECK(charged->load_relaxed() == 2 * kPackedBytes);
  f.reset();
  CHECK(charged->load_relaxed() == 0);
  Stored one({.nodes = 1});
  CHECK(one.read(1) == one.rooms[0].get());
  CHECK(one.source->charges.load_relaxed() == 1);
  CHECK(one.store->describe_copies().empty());
}

// y = x @ w, w of 3 MiB: w[i][j] = i % 7 - j % 5.
struct NodeProduct {
  static constexpr int64_t kK = 768, kN = 1024;
  static ir::Tensor weight() {
    std::vector<float> values(kK * kN);
    for (int64_t i = 0; i < kK; ++i) {
      for (int64_t j = 0; j < kN; ++j)
        values[static_cast<size_t>(i * kN + j)] = static_cast<float>(i % 7 - j % 5);
    }
    return ir::Tensor::of<float>(ir::DType::kF32, {kK, kN}, values);
  }
  static ir::Graph graph(const ir::Tensor& w) {
    ir::Builder b;
    b.output(*b.node("Linear", {b.input("x", {ir::DType::kF32, {1, kK}}), b.constant(w)}));
    return *b.take();
  }
};

TEST_CASE("calls from every node of a machine of 2 and 4 give right values, with copies and without") {
  constexpr int kThreads = 8, kCalls = 6;
  const ir::Tensor w = NodeProduct::weight();
  for (const int nodes : {2, 4}) {
    for (const bool copies : {true, false}) {
      CAPTURE(nodes);
      CAPTURE(copies);
      const FakeRoot root(fake_nodes({.nodes = nodes, .cores_each = 1}));
      const auto source = std::make_shared<ChargedSource>();
      const auto device = require(make_host_device(
          {.threads = 3, .copies_weights = copies, .root = root.path(), .core = [] { return fake_core; }}));
      fake_core = 0;
      auto module = require(device->load(NodeProduct::graph(w), {}, source, NoLocksHeld()));
      auto program = require(module->compile({{{1, NodeProduct::kK}}}, NoLocksHeld()));
      Atomic<int> right{0};
      run_together(kThreads, [&](int thread) {
        fake_core = thread % nodes;
        const auto queue = require(device->make_queue(NoLocksHeld()));
        const auto arena = require(device::arena_for(*device, *program));
        std::vector<float> x(NodeProduct::kK), expected(NodeProduct::kN, 0);
        const ir::Tensor y = ir::Tensor::zeros(ir::DType::kF32, {1, NodeProduct::kN});
        for (int call = 0; call < kCalls; ++call) {
          for (size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<float>((static_cast<int>(i) + thread + call) % 3);
          for (int64_t j = 0; j < NodeProduct::kN; ++j) {
            float sum = 0;
            for (int64_t i = 0; i < NodeProduct::kK; ++i)
              sum += x[static_cast<size_t>(i)] * static_cast<float>(i % 7 - j % 5);
            expected[static_cast<size_t>(j)] = sum;  // small whole numbers: exact in any order
          }
          const ir::Tensor in = ir::Tensor::of<float>(ir::DType::kF32, {1, NodeProduct::kK}, x);
          device::CommandList list;
          list.run(program, arena, {view_of(in)}, {view_of(y)});
          const bool ran = queue->submit(list, static_cast<uint64_t>(call) + 1, NoLocksHeld()).ok();
          if (ran && std::equal(expected.begin(), expected.end(), y.as<float>())) right.add_relaxed(1);
        }
      });
      CHECK(right.load_relaxed() == kThreads * kCalls);
      const uint64_t whole = source->charged->load_relaxed();
      CHECK(whole % (copies ? static_cast<uint64_t>(nodes) : 1) == 0);
      CHECK(whole >= (copies ? static_cast<uint64_t>(nodes) : 1) * kPackedBytes);
      CHECK(whole < (copies ? static_cast<uint64_t>(nodes) : 1) * kPackedBytes * 5 / 4);
      const auto planned = require(module->plan({{{1, NodeProduct::kK}}}, UINT64_MAX, NoLocksHeld()));
      CHECK((planned.weights.find("node 1: 3 MiB copied") != std::string::npos) == copies);
      program.reset();
      module.reset();
      CHECK(source->charged->load_relaxed() == 0);
    }
  }
}

}  // namespace
}  // namespace heddle::host
