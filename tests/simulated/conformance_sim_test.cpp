// Every operator's cases on the simulated device, whose schedule and whose users' are a simulation's.
#include <utility>
#include <vector>

#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/driver_conformance/session_fixture.h"
#include "world_fixture.h"

namespace heddle::simulated {
namespace {

using OneCase = std::pair<const conformance::Case*, DType>;

std::vector<OneCase> each_case(const std::vector<conformance::Case>& cases) {
  std::vector<OneCase> all;
  for (const conformance::Case& each : cases) {
    for (const DType dtype : each.dtypes) all.emplace_back(&each, dtype);
  }
  return all;
}

TEST_CASE(
    "simulated: every operator gives the reference's values, in every element type and kind of memory") {
  static const std::vector<conformance::Case> cases = conformance::all_cases();
  static const std::vector<OneCase> all = each_case(cases);
  constexpr size_t kSeeds = 500, kThreads = 2;
  REQUIRE(all.size() > 1000);
  size_t right = 0;
  // Half of the seeds take each kind of memory; they share the cases out, each to one of two threads.
  holds_for_seeds(
      kSeeds,
      [&](Simulation& simulation) {
        const bool staging = simulation.seed() % 2 == 0;
        conformance::put_operands_in(staging ? device::MemoryKind::staging : device::MemoryKind::device);
        const Ref<sim::SimDevice> device = make_device(some_device(simulation));
        Atomic<size_t> done{0};
        run_together(kThreads, [&](int thread) {
          const size_t mine = simulation.seed() / 2 * kThreads + static_cast<size_t>(thread);
          for (size_t i = mine % (kSeeds / 2 * kThreads); i < all.size(); i += kSeeds / 2 * kThreads) {
            const auto& [one, dtype] = all[i];
            const Status status = conformance::check_case(*device, *one, dtype);
            // Its output's shape depends on the data, which no driver can plan for.
            const bool cannot = one->op == "NonZero" && status.code() == Code::unsupported;
            simulation.expect(status.ok() || cannot,
                              text(one->op, ' ', ir::name(dtype), ": ", to_string(status)));
            done.add_relaxed(1);
          }
        });
        right += done.load_relaxed();
        simulation.expect(device->violations().empty(), "no rule is broken");
        expect_ok(simulation, device->lost());
      },
      of_whole_calls());
  conformance::put_operands_in(device::MemoryKind::device);
  if (!heddle::test::number_in("HEDDLE_SIM_SEED")) CHECK(right >= 2 * all.size());
}

}  // namespace
}  // namespace heddle::simulated
