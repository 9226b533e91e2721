// Every operator with arrays that are small: whatever is too large has to be refused by the driver, before it
// reaches MPSGraph, which would end the process.
#include <csignal>

#include "field_fixture.h"
#include "tests/driver_conformance/op_cases_fixture.h"

namespace heddle::metal::test {
namespace {

struct Compiled {
  int whole = 0, refused = 0, other = 0;
};

// What would end the process is said first: the parent shows it.
void compile(device::Device& device, const Case& c, DType dtype, int64_t most, Compiled& count) {
  const auto operands = conformance::make_inputs(c, dtype);
  if (!operands.ok()) return;
  const auto module = device.load(operands->graph, {}, device::plain_source(device), NoLocksHeld());
  if (!module.ok()) return;
  std::fprintf(stderr, "%s of %s, at most %d elements\n", std::string(c.op).c_str(),
               std::string(ir::name(dtype)).c_str(), static_cast<int>(most));
  const Status status = conformance::compile(**module, operands->inputs).status();
  if (status.ok()) {
    ++count.whole;
  } else if (status.message().find("MPSGraph takes at most") != std::string::npos) {
    ++count.refused;
    CHECK(status.code() == Code::unsupported);
  } else {
    ++count.other;
    CHECK_MESSAGE(status.code() == Code::unsupported, to_string(status));
  }
}

TEST_CASE("a child compiles every operator with small arrays" * doctest::skip()) {
  signal(SIGABRT, SIG_DFL);
  for (const int64_t most : {40, 400}) {
    const Machine machine;
    FieldLimits field = metal_double::field_limits_of(kOldest);
    Limits limits = Limits::of(driver_mac(kOldest));
    field.array_elements = limits.array_elements = most;
    field.array_bytes = limits.array_bytes = 4 * most;
    metal_double::become(kOldest, field);
    const auto device = make_metal_device({{}, kStuckAfter, limits});
    REQUIRE(device.ok());
    Compiled count;
    for (const Case& c : conformance::all_cases()) {
      for (const DType dtype : c.dtypes) compile(**device, c, dtype, most, count);
    }
    CHECK(count.refused > 100);
    CHECK(count.whole > 100);
  }
}

TEST_CASE("no operator makes an array that is too large: it is refused by name, or compiled") {
  const heddle::test::Child child =
      heddle::test::run_child("a child compiles every operator with small arrays");
  const size_t end = child.said.size();
  CHECK_MESSAGE(child.exit_code == 0, child.said.substr(end > 2000 ? end - 2000 : 0));
}

}  // namespace
}  // namespace heddle::metal::test
