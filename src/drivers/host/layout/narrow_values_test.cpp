#include "drivers/host/layout/narrow_values.h"

#include <doctest/doctest.h>

#include <string>

#include "drivers/host/layout/storage.h"
#include "ir/builder.h"

namespace heddle::host {
namespace {

const ir::TensorType kRowsType = {ir::DType::kF32, {32, 8}};
const ir::TensorType kImage = {ir::DType::kF32, {1, 8, 6, 6}};
const ir::TensorType kSequence = {ir::DType::kF32, {2, 16, 24}};

ir::ValueId weight(ir::Builder& b, const ir::Extents& extents) {
  return b.constant(ir::Tensor::zeros(ir::DType::kF32, extents));
}
ir::ValueId linear(ir::Builder& b, ir::ValueId x, int64_t k = 8, int64_t n = 8) {
  return *b.node("Linear", {x, weight(b, {k, n})});
}
ir::ValueId conv(ir::Builder& b, ir::ValueId x, int64_t group = 1) {
  return *b.node("Conv", {x, weight(b, {8, 8 / group, 1, 1})}, {{"group", group}});
}

struct Chain {
  const char* name;
  bool narrow;                        // what make() returns
  ir::ValueId (*make)(ir::Builder&);  // a graph but for its last node, and the value in question
};

const Chain kChains[] = {
    {"between two products", true,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType));
       b.output(linear(b, y));
       return y;
     }},
    {"an input of the graph", false,
     [](ir::Builder& b) {
       const ir::ValueId x = b.input("x", kRowsType);
       b.output(linear(b, x));
       return x;
     }},
    {"an output of the graph", false,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType));
       b.output(linear(b, y));
       b.output(y);
       return y;
     }},
    {"read by something that computes in f32 too", false,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType));
       b.output(linear(b, y));
       b.output(*b.node("Neg", {y}));
       return y;
     }},
    {"made by something that computes in f32", false,
     [](ir::Builder& b) {
       const ir::ValueId y = *b.node("Neg", {b.input("x", kRowsType)});
       b.output(linear(b, y));
       return y;
     }},
    {"renamed on its way", true,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType)),
                         shape = b.constant(ir::Tensor::of_i64({4, 8, 8}));
       const ir::ValueId renamed = *b.node("Reshape", {y, shape});
       b.output(linear(b, renamed));
       return renamed;
     }},
    {"renamed into an output", false,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType)),
                         shape = b.constant(ir::Tensor::of_i64({4, 8, 8}));
       b.output(linear(b, y));
       b.output(*b.node("Reshape", {y, shape}));
       return y;
     }},
    {"the weight of a product", false,
     [](ir::Builder& b) {
       const ir::ValueId x = b.input("x", {ir::DType::kF32, {8, 8}}), y = linear(b, x);
       b.output(*b.node("MatMul", {x, y}));
       return y;
     }},
    {"a residual and an operand", true,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kRowsType));
       b.output(*b.node("Linear", {y, weight(b, {8, 8}), ir::kNoValue, y}));
       return y;
     }},
    {"between convolutions", true,
     [](ir::Builder& b) {
       const ir::ValueId y = conv(b, b.input("x", kImage));
       b.output(conv(b, y, 8));
       return y;
     }},
    {"before a convolution of groups of several channels", false,
     [](ir::Builder& b) {
       const ir::ValueId y = conv(b, b.input("x", kImage));
       b.output(conv(b, y, 2));
       return y;
     }},
    {"a maximum of narrow values", true,
     [](ir::Builder& b) {
       const ir::ValueId y = *b.node("MaxPool", {conv(b, b.input("x", kImage))},
                                     {{"kernel_shape", std::vector<int64_t>{2, 2}}});
       b.output(conv(b, y));
       return y;
     }},
    {"a maximum that is read in f32, before the pool", false,
     [](ir::Builder& b) {
       const ir::ValueId y = conv(b, b.input("x", kImage));
       b.output(*b.node("MaxPool", {y}, {{"kernel_shape", std::vector<int64_t>{2, 2}}}));
       return y;
     }},
    {"attention's operand", true,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", kSequence), 24, 24);
       b.output(*b.node("Attention", {y}, {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}}));
       return y;
     }},
    {"attention's result", true,
     [](ir::Builder& b) {
       const ir::ValueId y = *b.node("Attention", {b.input("x", kSequence)},
                                     {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}});
       b.output(linear(b, y));
       return y;
     }},
    {"attention's operand, of one query", false,
     [](ir::Builder& b) {
       const ir::ValueId y = linear(b, b.input("x", {ir::DType::kF32, {2, 1, 24}}), 24, 24);
       b.output(*b.node("Attention", {y}, {{"num_heads", int64_t{2}}, {"packed", int64_t{1}}}));
       return y;
     }},
};

TEST_CASE("a value is narrow when a product makes it and products alone read it") {
  for (const Chain& chain : kChains) {
    const std::string name = chain.name;
    CAPTURE(name);
    ir::Builder b;
    const ir::ValueId id = chain.make(b);
    const ir::Graph graph = *b.take();
    for (const bool bf16 : {true, false}) {
      CAPTURE(bf16);
      const Result<Storage> storage = assign_storage(graph, {.bf16 = bf16});
      REQUIRE(storage.ok());
      CHECK(storage->operands[id].narrow == (bf16 && chain.narrow));
    }
  }
}

TEST_CASE("a narrow value takes half the room") {
  ir::Builder b;
  b.output(linear(b, linear(b, b.input("x", kRowsType))));
  const ir::Graph graph = *b.take();
  CHECK(assign_storage(graph, {})->arena_bytes == 32 * 8 * 4);
  CHECK(assign_storage(graph, {.bf16 = true})->arena_bytes == 32 * 8 * 2);
}

}  // namespace
}  // namespace heddle::host
