// What only the data shows to be wrong, and whose it is.
#include <doctest/doctest.h>

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

}  // namespace
}  // namespace heddle::cuda
