// What a convolution promises beyond the reference's values.
#include <doctest/doctest.h>

#include <cstring>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using Is = std::vector<int64_t>;

struct Convolution {
  ir::Extents image, w;
  ir::Attributes attributes;
  double most = 2;  // of the elements
};

// One image is made by chunks apart, by small tiles or one element a thread; many by large tiles.
const Convolution kConvolutions[] = {
    {{140, 9, 11}, {70, 140, 3, 3}, {{"pads", Is{1, 1, 1, 1}}}},
    {{3, 9, 11}, {130, 3, 3, 3}, {{"strides", Is{2, 1}}}},
    {{24, 5, 5}, {80, 12, 4, 4}, {{"group", int64_t{2}}}},
    {{12, 9, 11}, {12, 1, 3, 3}, {{"group", int64_t{12}}}},
    {{8, 9, 11}, {130, 8, 3, 3}, {{"strides", Is{2, 1}}}, 1e-23},  // sums of 0 and -0
};

TEST_CASE("an image's bits after a convolution do not depend on the batch it is in") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  for (const Convolution& each : kConvolutions) {
    for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF16}) {
      CAPTURE(each.w[0]);
      const ir::Extents& image = each.image;
      ir::Builder b;
      const ir::ValueId x = b.input("x", {dtype, {ir::Dim::symbol("batch"), image[0], image[1], image[2]}});
      const ir::ValueId w = b.constant(conformance::random_tensor(dtype, each.w, 1, -each.most, each.most));
      b.output(*b.node("Conv", {x, w}, each.attributes));
      const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
      REQUIRE(module.ok());
      conformance::Session session(**device);
      const ir::Tensor images =
          conformance::random_tensor(dtype, {9, image[0], image[1], image[2]}, 2, -each.most, each.most);
      std::vector<ir::Tensor> alone;
      for (const int64_t batch : {1, 2, 9}) {
        ir::Tensor some = ir::Tensor::zeros(dtype, {batch, image[0], image[1], image[2]});
        for (int64_t i = 0; i < some.elements(); ++i) some.set(i, images.get(i));
        const auto program = conformance::compile(**module, {some});
        REQUIRE(program.ok());
        const auto got = session.run(*program, std::vector<ir::Tensor>{some});
        REQUIRE(got.ok());
        if (batch == 1) alone = *got;
        const auto bytes = static_cast<size_t>(alone[0].bytes());
        CHECK(std::memcmp((*got)[0].data(), alone[0].data(), bytes) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::cuda
