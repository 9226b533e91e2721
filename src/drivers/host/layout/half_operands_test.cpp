#include "drivers/host/layout/half_operands.h"

#include <doctest/doctest.h>

#include <string>

#include "drivers/host/require_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace heddle::host {
namespace {

struct HalfConv {
  ir::DType given = ir::DType::kBF16;
  ir::Extents x{2, 4, 8, 8}, weight{6, 4, 3, 3};
  int64_t group = 1;
  bool x_read_twice = false, weight_read_twice = false;
};

struct Taken {
  bool x, weight;
  bool operator==(const Taken&) const = default;
};

Taken taken_by_conv(const HalfConv& c, bool multiplies_bf16) {
  ir::Builder b;
  const ir::Attributes to_f32 = {{"to", std::string("f32")}};
  const auto brought = [&](const char* name, const ir::Extents& extents) {
    return *b.node("Cast", {b.input(name, {c.given, {extents.begin(), extents.end()}})}, to_f32);
  };
  const ir::ValueId x = brought("x", c.x), weight = brought("w", c.weight);
  b.output(*b.node("Conv", {x, weight}, {{"group", c.group}}));
  if (c.x_read_twice) b.output(*b.node("Abs", {x}));
  if (c.weight_read_twice) b.output(*b.node("Abs", {weight}));
  const auto from = half_operands(require(b.take()), multiplies_bf16);
  return {from[x] != ir::kNoValue, from[weight] != ir::kNoValue};
}

}  // namespace

TEST_CASE("a convolution takes the sixteen bits that its caller brings") {
  const HalfConv plain;
  HalfConv f16, line, volume, depthwise, grouped, far, x_read, weight_read;
  f16.given = ir::DType::kF16;
  line.x = {2, 4, 9}, line.weight = {6, 4, 3};
  volume.x = {2, 4, 5, 5, 5}, volume.weight = {6, 4, 3, 3, 3};
  depthwise.weight = {4, 1, 3, 3}, depthwise.group = 4;
  grouped.weight = {6, 2, 3, 3}, grouped.group = 2;
  far.x = {2, 4, 3, 3, 3, 3}, far.weight = {6, 4, 1, 1, 1, 1};
  x_read.x_read_twice = true;
  weight_read.weight_read_twice = true;
  struct Case {
    const char* name;
    HalfConv conv;
    Taken taken;
  };
  for (const Case& each : {Case{"an image", plain, {true, true}},
                           {"a line", line, {true, true}},
                           {"a volume", volume, {true, true}},
                           {"one channel a group", depthwise, {true, true}},
                           {"several channels a group", grouped, {true, true}},
                           {"f16", f16, {true, true}},
                           {"four spatial axes", far, {false, false}},
                           {"another reader of x", x_read, {false, true}},
                           {"another reader of the weight", weight_read, {true, false}}}) {
    CAPTURE(std::string(each.name));
    for (const bool multiplies_bf16 : {true, false})
      CHECK(taken_by_conv(each.conv, multiplies_bf16) == each.taken);
  }
}

}  // namespace heddle::host
