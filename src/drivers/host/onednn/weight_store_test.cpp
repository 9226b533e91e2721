#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/require_fixture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

struct Twice final : Packed {
  explicit Twice(float first) : value(2 * first) {}
  uint64_t bytes() const override { return 100; }
  float value;
};

ir::Graph graph_of(const ir::Tensor& weight) {
  ir::Builder b;
  b.output(*b.node("Add", {b.input("x", weight.type()), b.constant(weight)}));
  return *b.take();
}

TEST_CASE("a weight is packed once per layout, however many threads ask") {
  const ir::Tensor weight = ir::Tensor::of<float>(ir::DType::kF32, {2}, std::vector<float>{3, 4});
  const ir::Graph graph = graph_of(weight);
  WeightStore store(*make_engine(false), graph, source_of_tests());
  Atomic<int> packed{0}, wrong{0};
  run_together(8, [&](int thread) {
    for (const char* layout : {"a", "b"}) {
      const auto got = store.get<Twice>(weight.data(), layout, [&]() -> Result<Ref<const Twice>> {
        packed.add_relaxed(1);
        return std::make_shared<const Twice>(weight.as<float>()[0]);
      });
      if (!got.ok() || (*got)->value != 6) wrong.add_relaxed(1);
    }
    static_cast<void>(thread);
  });
  CHECK(packed.load_acquire() == 2);
  CHECK(wrong.load_acquire() == 0);
  CHECK(store.count() == 2);
  CHECK(store.bytes() == 200);
}

TEST_CASE("what is not the module's own is packed for the caller and not kept") {
  const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {2}),
                   folded = ir::Tensor::zeros(ir::DType::kF32, {2});
  const ir::Graph graph = graph_of(weight);
  WeightStore store(*make_engine(false), graph, source_of_tests());
  int packed = 0;
  for (int i = 0; i < 3; ++i) {
    const auto got = store.get<Twice>(folded.data(), "a", [&]() -> Result<Ref<const Twice>> {
      return std::make_shared<const Twice>(static_cast<float>(++packed));
    });
    CHECK((*got)->value == static_cast<float>(2 * packed));
  }
  CHECK(packed == 3);
  CHECK(store.count() == 0);
}

TEST_CASE("a failure to pack reaches the caller, and the next call packs anew") {
  const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {2});
  const ir::Graph graph = graph_of(weight);
  WeightStore store(*make_engine(false), graph, source_of_tests());
  const auto failed = store.get<Twice>(
      weight.data(), "a", []() -> Result<Ref<const Twice>> { return Status::exhausted("full"); });
  CHECK(failed.status().code() == Code::exhausted);
  const auto got = store.get<Twice>(
      weight.data(), "a", []() -> Result<Ref<const Twice>> { return std::make_shared<const Twice>(1.0F); });
  CHECK(got.ok());
}

TEST_CASE("only a large weight of a large model's own lies on a span; room outlives the store") {
  constexpr int64_t kLarge = 3 << 18;  // floats: 3 MiB
  struct Line {
    const char* what;
    int64_t weight;  // floats
    bool own;
    uint64_t asked;
    bool on_span;
  };
  for (const Line& line : {Line{"large", kLarge, true, 1 << 20, true},
                           Line{"a small piece of a large model", kLarge, true, 1 << 10, false},
                           Line{"a model of small weights", 1 << 16, true, 1 << 18, false},
                           Line{"folded for one shape", kLarge, false, 1 << 20, false}}) {
    CAPTURE(line.what);
    const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {line.weight});
    const ir::Tensor folded = ir::Tensor::zeros(ir::DType::kF32, {line.weight});
    const ir::Graph graph = graph_of(weight);
    auto store = std::make_unique<WeightStore>(*make_engine(false), graph, source_of_tests());
    const void* source = line.own ? weight.data() : folded.data();
    const auto first = store->room(source, line.asked), second = store->room(source, line.asked);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    for (const auto* room : {&first, &second}) {
      CHECK(reinterpret_cast<uintptr_t>((*room)->get()) % 64 == 0);
      std::memset((*room)->get(), 5, line.asked);
    }
    const bool on_span = reinterpret_cast<uintptr_t>(first->get()) % HugePages::kPageBytes == 0 &&
                         second->get() == first->get() + line.asked;
    CHECK(on_span == line.on_span);
    store.reset();
    CHECK(std::count(second->get(), second->get() + line.asked, std::byte{5}) ==
          static_cast<int64_t>(line.asked));
  }
}

TEST_CASE("what 8 threads pack at once into one store keeps its values") {
  constexpr int kThreads = 8;
  constexpr int64_t kCount = 1 << 18;
  ir::Builder b;
  std::vector<ir::Tensor> weights;
  ir::ValueId y = b.input("x", {ir::DType::kF32, {kCount}});
  for (int i = 0; i < kThreads; ++i) {
    weights.push_back(ir::Tensor::zeros(ir::DType::kF32, {kCount}));
    y = *b.node("Add", {y, b.constant(weights.back())});
  }
  b.output(y);
  const ir::Graph graph = *b.take();
  struct Filled final : Packed {
    uint64_t bytes() const override { return kCount; }
    WeightRoom data;
  };
  auto store = std::make_unique<WeightStore>(*make_engine(false), graph, source_of_tests());
  std::vector<Ref<const Filled>> packed(kThreads * kThreads);
  Atomic<int> makes{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kThreads; ++i) {
      const int which = (i + thread) % kThreads;
      const void* source = weights[static_cast<size_t>(which)].data();
      auto got = store->get<Filled>(source, "filled", [&]() -> Result<Ref<const Filled>> {
        auto filled = std::make_shared<Filled>();
        HEDDLE_TRY_ASSIGN(filled->data, store->room(source, kCount));
        std::memset(filled->data.get(), which + 1, kCount);
        makes.add_relaxed(1);
        return Ref<const Filled>(std::move(filled));
      });
      if (got.ok()) packed[static_cast<size_t>(thread * kThreads + which)] = *std::move(got);
    }
  });
  store.reset();
  CHECK(makes.load_acquire() == kThreads);
  for (size_t i = 0; i < packed.size(); ++i) {
    REQUIRE(packed[i] != nullptr);
    const auto value = static_cast<std::byte>(i % kThreads + 1);
    CHECK(packed[i] == packed[i % kThreads]);
    CHECK(std::count(packed[i]->data.get(), packed[i]->data.get() + kCount, value) == kCount);
  }
}

}  // namespace
}  // namespace heddle::host
