#include "drivers/host/onednn/weight_store.h"

#include <doctest/doctest.h>

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
  WeightStore store(*make_engine(false), graph);
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

TEST_CASE("what is not the module's own is packed for who asks and not kept") {
  const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {2}),
                   folded = ir::Tensor::zeros(ir::DType::kF32, {2});
  const ir::Graph graph = graph_of(weight);
  WeightStore store(*make_engine(false), graph);
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

TEST_CASE("a failure to pack reaches who asks, and the next call packs anew") {
  const ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {2});
  const ir::Graph graph = graph_of(weight);
  WeightStore store(*make_engine(false), graph);
  const auto failed = store.get<Twice>(
      weight.data(), "a", []() -> Result<Ref<const Twice>> { return Status::exhausted("full"); });
  CHECK(failed.status().code() == Code::exhausted);
  const auto got = store.get<Twice>(
      weight.data(), "a", []() -> Result<Ref<const Twice>> { return std::make_shared<const Twice>(1.0F); });
  CHECK(got.ok());
}

}  // namespace
}  // namespace heddle::host
