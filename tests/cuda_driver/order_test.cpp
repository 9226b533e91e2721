// A kernel's result does not depend on the order in which the threads of a block come: where it did, a
// barrier would be missing.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

TEST_CASE("every kernel gives the same bits in whatever order the threads of a block come") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  int compared = 0;
  std::vector<std::pair<const conformance::Case*, ir::DType>> all;
  const std::vector<conformance::Case> cases = conformance::all_cases();
  for (const conformance::Case& each : cases) {
    all.push_back({&each, each.dtypes.front()});
    // That of 16 bits is a kernel of its own.
    if (each.op == "Attention" && each.dtypes.size() > 1) all.push_back({&each, ir::DType::kBF16});
  }
  for (const auto& [one, dtype] : all) {
    const conformance::Case& each = *one;
    const auto operands = conformance::make_operands(each, dtype);
    if (!operands.ok()) continue;
    const auto module = (*device)->load(operands->graph, {}, device::plain_source(**device), NoLocksHeld());
    REQUIRE(module.ok());
    const auto program = conformance::compile(**module, operands->inputs);
    if (program.status().code() == heddle::Code::unsupported) continue;
    REQUIRE(program.ok());
    std::vector<std::vector<ir::Tensor>> runs;
    for (const uint64_t seed : {1, 2, 3}) {
      cuda_double::set_seed(seed);
      const auto got = conformance::Session(**device).run(*program, operands->inputs);
      REQUIRE(got.ok());
      runs.push_back(*got);
    }
    CAPTURE(std::string(each.op));
    for (size_t i = 0; i < runs[0].size(); ++i) {
      CHECK(conformance::same_bits(runs[0][i], runs[1][i]));
      CHECK(conformance::same_bits(runs[0][i], runs[2][i]));
    }
    ++compared;
  }
  CHECK(compared > 200);
}

}  // namespace
}  // namespace heddle::cuda
