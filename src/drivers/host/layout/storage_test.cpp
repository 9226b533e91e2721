#include "drivers/host/layout/storage.h"

#include <doctest/doctest.h>

#include "ir/builder.h"

namespace heddle::host {
namespace {

using Location = Operand::Location;

const ir::TensorType kRow = {ir::DType::kF32, {64}};

TEST_CASE("values that are dead leave their memory to later ones") {
  ir::Builder b;
  ir::ValueId x = b.input("x", kRow);
  for (int i = 0; i < 20; ++i) x = *b.node("Neg", {x});
  b.output(x);
  const Result<Storage> storage = assign_storage(*b.take(), {});
  REQUIRE(storage.ok());
  CHECK(storage->arena_bytes == 2 * 256);
  CHECK(storage->copies.empty());
}

TEST_CASE("two values that are alive at once never overlap") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", kRow);
  std::vector<ir::ValueId> kept;
  for (int i = 0; i < 6; ++i) kept.push_back(*b.node("Neg", {kept.empty() ? x : kept.back()}));
  b.output(*b.node("Max", kept));
  const ir::Graph graph = *b.take();
  const Result<Storage> storage = assign_storage(graph, {});
  REQUIRE(storage.ok());
  for (size_t i = 0; i < kept.size(); ++i) {
    const Operand& a = storage->operands[kept[i]];
    CHECK(a.location == Location::kArena);
    CHECK(a.offset % 64 == 0);
    CHECK(a.offset + 256 <= storage->arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const Operand& other = storage->operands[kept[j]];
      CHECK((a.offset + 256 <= other.offset || other.offset + 256 <= a.offset));
    }
  }
}

TEST_CASE("a renamed value shares its source's location, and keeps it alive") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", kRow), shape = b.constant(ir::Tensor::of_i64({8, 8}));
  const ir::ValueId y = *b.node("Neg", {x}), renamed = *b.node("Reshape", {y, shape});
  const ir::ValueId other = *b.node("Abs", {x}), sum = *b.node("Add", {other, other});
  b.output(*b.node("Neg", {renamed}));
  b.output(sum);
  const ir::Graph graph = *b.take();
  const Result<Storage> storage = assign_storage(graph, {});
  REQUIRE(storage.ok());
  const auto& operands = storage->operands;
  CHECK(operands[renamed].location == Location::kArena);
  CHECK(operands[renamed].offset == operands[y].offset);
  CHECK(operands[renamed].extents == ir::Extents{8, 8});
  CHECK(operands[other].offset != operands[y].offset);
}

TEST_CASE("outputs are written in place, and copied only when they have no memory of their own") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", kRow), c = b.constant(ir::Tensor::zeros(ir::DType::kF32, {64}));
  const ir::ValueId y = *b.node("Neg", {x}), z = *b.node("Abs", {y});
  for (ir::ValueId id : {y, x, c, y, z}) b.output(id);
  const Result<Storage> storage = assign_storage(*b.take(), {});
  REQUIRE(storage.ok());
  CHECK(storage->arena_bytes == 0);
  CHECK(storage->operands[y].location == Location::kOutput);
  CHECK(storage->operands[y].offset == 0);
  CHECK(storage->operands[z].offset == 4);
  REQUIRE(storage->copies.size() == 3);
  const std::vector<std::pair<Location, uint64_t>> wanted = {
      {Location::kInput, 1}, {Location::kConstant, 2}, {Location::kOutput, 3}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK(storage->copies[i].first.location == wanted[i].first);
    CHECK(storage->copies[i].second.offset == wanted[i].second);
  }
}

TEST_CASE("channels lie last only between operators that read and write them so") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {1, 4, 6, 6}});
  const ir::ValueId w = b.constant(ir::Tensor::zeros(ir::DType::kF32, {4, 4, 1, 1}));
  const ir::ValueId a = *b.node("Conv", {x, w}), inner = *b.node("Conv", {a, w}),
                    seen = *b.node("Conv", {inner, w}), weight = *b.node("Conv", {x, w});
  b.output(*b.node("Conv", {a, weight}));
  const ir::ValueId pool = *b.node("GlobalAveragePool", {seen});
  b.output(*b.node("Neg", {seen}));
  b.output(pool);
  const Result<Storage> storage = assign_storage(*b.take(), {});
  REQUIRE(storage.ok());
  CHECK_FALSE(storage->operands[x].channels_last);
  CHECK(storage->operands[a].channels_last);
  CHECK(storage->operands[inner].channels_last);
  CHECK_FALSE(storage->operands[seen].channels_last);
  CHECK_FALSE(storage->operands[weight].channels_last);
  CHECK_FALSE(storage->operands[pool].channels_last);
}

TEST_CASE("channels stay last through element-wise nodes, Concat, Split and Resize between convolutions") {
  ir::Builder b;
  const ir::TensorType image{ir::DType::kF32, {1, 4, 6, 6}};
  const ir::ValueId x = b.input("x", image), r = b.input("r", image);
  const ir::ValueId w = b.constant(ir::Tensor::zeros(ir::DType::kF32, {4, 4, 1, 1}));
  const ir::ValueId wide = b.constant(ir::Tensor::zeros(ir::DType::kF32, {2, 8, 1, 1}));
  const ir::ValueId two =
      b.constant(ir::Tensor::of<double>(ir::DType::kF32, {4}, std::vector<double>{1, 1, 2, 2}));
  const ir::ValueId a = *b.node("Conv", {x, w}), gate = *b.node("GlobalAveragePool", {a});
  const ir::ValueId scaled = *b.node("Mul", {a, gate});
  const ir::ValueId once = *b.node("Resize", {scaled, ir::kNoValue, two}, {{"mode", std::string("nearest")}});
  const ir::ValueId again = *b.node("Neg", {once});
  const ir::ValueId both = *b.node("Concat", {once, again}, {{"axis", int64_t{1}}});
  const auto parts = *b.nodes("Split", {both}, 2, {{"axis", int64_t{1}}});
  const ir::ValueId mixed = *b.node("Conv", {x, w}), sum = *b.node("Add", {mixed, r});
  b.output(*b.node("Conv", {both, wide}));
  for (ir::ValueId id : parts) b.output(*b.node("Conv", {id, w}));
  b.output(*b.node("Conv", {sum, w}));
  const Result<Storage> storage = assign_storage(*b.take(), {});
  REQUIRE(storage.ok());
  for (ir::ValueId id : {a, scaled, once, again, both, parts[0], parts[1]})
    CHECK(storage->operands[id].channels_last);
  // The other operand of the sum is plain.
  CHECK_FALSE(storage->operands[mixed].channels_last);
  CHECK_FALSE(storage->operands[sum].channels_last);
}

TEST_CASE("what is read with an axis more lies plain, also where that axis is the channels' one") {
  ir::Builder b;
  const ir::Attributes two{{"kernel_shape", std::vector<int64_t>{2}}};
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {1, 3, 7}});
  const ir::ValueId wide = b.input("wide", {ir::DType::kF32, {1, 1, 3, 6}});
  const ir::ValueId pool = *b.node("AveragePool", {x}, two), other = *b.node("AveragePool", {x}, two);
  b.output(*b.node("Min", {pool, wide}));
  b.output(*b.node("AveragePool", {other}, two));
  const Result<Storage> storage = assign_storage(*b.take(), {});
  REQUIRE(storage.ok());
  CHECK_FALSE(storage->operands[pool].channels_last);
  CHECK(storage->operands[other].channels_last);
}

TEST_CASE("a shape that is not numbers is a fault of ours, by the value's name") {
  ir::Builder b;
  b.output(*b.node("Neg", {b.input("x", {ir::DType::kF32, {ir::Dim::symbol("n")}})}));
  const Result<Storage> storage = assign_storage(*b.take(), {});
  CHECK(storage.status().code() == Code::internal);
  CHECK(storage.status().message().find("'x'") != std::string::npos);
}

}  // namespace
}  // namespace heddle::host
