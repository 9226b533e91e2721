// What goes before what where comparing alone does not say.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

// NaN counts as the greatest; of equal elements, 0 and -0 among them, the first comes first.
TEST_CASE("extremes and orders of NaN and of signed zeros are the reference's") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  ir::Tensor x = ir::Tensor::zeros(ir::DType::kF32, {9});
  const double values[] = {1, -0.0, NAN, 0.0, -INFINITY, -NAN, 2, INFINITY, -1};
  for (int64_t i = 0; i < 9; ++i) x.set(i, values[i]);
  for (const std::string_view op : {"ArgMax", "ArgMin", "TopK"}) {
    for (const int64_t flag : {0, 1}) {
      ir::Builder b;
      std::vector<ir::ValueId> operands{b.input("x", x.type())};
      const ir::Tensor all = ir::Tensor::of_i64({9});
      if (op == "TopK") operands.push_back(b.constant(all));
      const char* const name = op == "TopK" ? "largest" : "select_last_index";
      const auto made = *b.nodes(op, operands, op == "TopK" ? 2 : 1, {{name, flag}});
      b.output(made.back());
      const ir::Graph graph = *b.take();
      std::vector<const ir::Tensor*> tensors{&x, &all};
      tensors.resize(operands.size());
      const auto wanted = ir::evaluate(graph.nodes.back(), tensors);
      REQUIRE(wanted.ok());
      const auto module = (*device)->load(graph, {}, device::plain_source(**device), NoLocksHeld());
      REQUIRE(module.ok());
      const auto program = conformance::compile(**module, {x});
      REQUIRE(program.ok());
      const auto got = conformance::Session(**device).run(*program, std::vector{x});
      REQUIRE(got.ok());
      CAPTURE(std::string(op));
      CHECK(conformance::same_bits(got->front(), wanted->back()));
    }
  }
}

// Without a number of samples a box has as many as elements, of which few are in the image.
TEST_CASE("a box that goes far beyond its image, or has none, ends and gives the reference's values") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  using conformance::I;
  for (const double far : {40.0, 1e9, 1e18, double{INFINITY}}) {
    for (const I height : {5, 0}) {
      for (const char* mode : {"avg", "max"}) {
        const conformance::Case boxes{"RoiAlign",
                                      {conformance::T({1, 2, height, 7}), conformance::T({3, 4}, 0, far),
                                       conformance::index({3}, 0, 0)},
                                      {{"mode", std::string(mode)}, {"output_width", I{2}}},
                                      {}};
        CAPTURE(far);
        CAPTURE(height);
        const Status status = conformance::check_case(**device, boxes, ir::DType::kF64);
        CHECK_MESSAGE(status.ok(), to_string(status));
      }
    }
  }
}

TEST_CASE("a box that is nowhere has no sample, however many it is to have") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  using conformance::I;
  for (const ir::DType dtype : conformance::kFloats) {
    for (const I ratio : {0, 2}) {
      for (const char* coordinates : {"half_pixel", "output_half_pixel"}) {
        const conformance::Case boxes{
            "RoiAlign",
            {conformance::T({2, 3, 8, 9}), conformance::T({4, 4}, NAN, NAN), conformance::index({4}, 0, 1)},
            {{"coordinate_transformation_mode", std::string(coordinates)}, {"sampling_ratio", ratio}},
            {}};
        CAPTURE(std::string(coordinates));
        const Status status = conformance::check_case(**device, boxes, dtype);
        CHECK_MESSAGE(status.ok(), to_string(status));
      }
    }
  }
}

}  // namespace
}  // namespace heddle::cuda
