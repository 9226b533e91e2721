// What only the data shows to be wrong, and whose it is.
#include <doctest/doctest.h>

#include <vector>

#include "device/plain_source_fixture.h"
#include "device/row_faults.h"
#include "drivers/cuda/cuda_device.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

TEST_CASE("of several runs in one list each has its own mistakes, whoever asks for them") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  ir::Builder b;
  const ir::ValueId indices = b.input("indices", {ir::DType::kI64, {3}});
  b.output(*b.node("Gather", {b.constant(ir::Tensor::of_i64({10, 20, 30})), indices}, {}, "lookup"));
  const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
  REQUIRE(module.ok());
  const ir::Tensor good = ir::Tensor::of_i64({0, 1, -1}), bad = ir::Tensor::of_i64({0, 3, 1});
  const auto program = conformance::compile(**module, {good});
  REQUIRE(program.ok());

  conformance::Session session(**device);
  const device::View out = conformance::empty_like(**device, ir::DType::kI64, {3}),
                     of_good = conformance::upload(**device, good),
                     of_bad = conformance::upload(**device, bad);
  const auto clean = std::make_shared<device::RowFaults>(0), wrong = std::make_shared<device::RowFaults>(0);
  for (int round = 0; round < 3; ++round) {  // the flags of the submission before are taken again
    device::CommandList list;
    list.run(*program, nullptr, {of_bad}, {out});
    list.run(*program, nullptr, {of_good}, {out}, clean);
    if (round == 1) list.run(*program, nullptr, {of_bad}, {out}, wrong);
    REQUIRE(session.submit(list).ok());
    CHECK(clean->whole().ok());
    CHECK(wrong->whole().ok() == (round == 0));
  }
  CHECK(wrong->whole().code() == heddle::Code::invalid);
  CHECK(wrong->whole().message().find("lookup") != std::string::npos);
}

TEST_CASE("an index that names no place is refused, and the message says which there are") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  const ir::Tensor image = conformance::random_tensor(ir::DType::kF32, {1, 1, 2, 2}, 1),
                   corners = conformance::random_tensor(ir::DType::kF32, {4, 4}, 2, 0, 2);
  struct Row {
    const char* op;
    std::vector<ir::Tensor> before;
    ir::Extents indices;
    ir::Attributes attributes;
    int64_t places;
  };
  const std::vector<Row> rows = {
      {"MaxUnpool", {image}, {1, 1, 2, 2}, {{"kernel_shape", std::vector<int64_t>{1, 1}}}, 4},
      {"RoiAlign", {image, corners}, {4}, {}, 1},
  };
  for (const Row& row : rows) {
    ir::Builder b;
    std::vector<ir::ValueId> operands;
    for (const ir::Tensor& tensor : row.before) operands.push_back(b.constant(tensor));
    operands.push_back(b.input("indices", {ir::DType::kI64, ir::to_shape(row.indices)}));
    b.output(*b.node(row.op, operands, row.attributes, "picker"));
    const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
    REQUIRE(module.ok());
    for (const int64_t index : {row.places - 1, row.places, int64_t{-1}}) {
      ir::Tensor indices = ir::Tensor::zeros(ir::DType::kI64, row.indices);
      indices.set_i64(2, index);
      const auto program = conformance::compile(**module, {indices});
      REQUIRE(program.ok());
      const auto got = conformance::Session(**device).run(*program, std::vector<ir::Tensor>{indices});
      CAPTURE(row.op);
      CHECK(got.ok() == (index == row.places - 1));
      if (got.ok()) continue;
      CHECK(got.status().code() == heddle::Code::invalid);
      const std::string right = text("[0, ", row.places - 1, "]");
      CHECK(got.status().message().find("picker") != std::string::npos);
      CHECK(got.status().message().find(right) != std::string::npos);
    }
  }
}

// A node whose first input is what only the data shows to be wrong, and what its rule says of it.
struct Mistake {
  std::string_view op, says;
  ir::Tensor good, bad;
  std::vector<ir::Tensor> constants;
  size_t place;  // of the first input among the operands; constants fill the others
};

std::vector<Mistake> mistakes() {
  const ir::Tensor data = ir::Tensor::zeros(ir::DType::kF32, {4}),
                   three = ir::Tensor::zeros(ir::DType::kF32, {3});
  const auto zeros = [](const ir::Extents& extents) { return ir::Tensor::zeros(ir::DType::kF32, extents); };
  return {
      {"ScatterElements",
       "[-4, 3]",
       ir::Tensor::of_i64({0, -4, 3}),
       ir::Tensor::of_i64({0, 4, 3}),
       {data, three},
       1},
      {"ScatterND",
       "axes of 4 elements",
       ir::Tensor::of_i64({0, -4, 3}).reshaped({3, 1}),
       ir::Tensor::of_i64({0, 3, -5}).reshaped({3, 1}),
       {data, three},
       1},
      {"RNN",
       "[0, 2]",
       ir::Tensor::of_i64({0, 2, 1}),
       ir::Tensor::of_i64({0, 3, 1}),
       {zeros({2, 3, 4}), zeros({1, 5, 4}), zeros({1, 5, 5}), zeros({1, 10})},
       4},
  };
}

TEST_CASE("indices and lengths from outside are refused by name, and others are not") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  for (const Mistake& each : mistakes()) {
    CAPTURE(std::string(each.op));
    ir::Builder b;
    const ir::ValueId asked = b.input("asked", each.good.type());
    std::vector<ir::ValueId> operands;
    for (const ir::Tensor& constant : each.constants) operands.push_back(b.constant(constant));
    operands.insert(operands.begin() + static_cast<std::ptrdiff_t>(each.place), asked);
    b.output(*b.node(each.op, operands, {}, "the_node"));
    const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
    REQUIRE(module.ok());
    const auto program = conformance::compile(**module, {each.good});
    REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
    conformance::Session session(**device);
    CHECK(session.run(*program, std::vector{each.good}).ok());
    const heddle::Status refused = session.run(*program, std::vector{each.bad}).status();
    CHECK(refused.code() == heddle::Code::invalid);
    for (const std::string_view part : {std::string_view("the_node"), each.says})
      CHECK_MESSAGE(refused.message().find(part) != std::string::npos, refused.message());
  }
}

}  // namespace
}  // namespace heddle::cuda
