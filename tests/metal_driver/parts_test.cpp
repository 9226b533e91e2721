// Submissions of which MPSGraph makes several command buffers, and handlers in any order.
#include "metal_driver_fixture.h"

namespace heddle::metal::test {
namespace {

// What the timeline says of one run that MPSGraph splits into three command buffers, the middle one of which
// fails when `fails`; `output` gets its result.
Status run_in_parts(bool fails, const Defences& defences, ir::Tensor& output) {
  const Machine machine;
  const auto device = open(defences);
  const auto program = lookup(*device, 3);
  metal_double::set(Fault::kGraphSplits, true);
  metal_double::set(Fault::kGraphRunError, fails);
  Session session(*device), other(*device);
  const device::View out = empty_like(*device, DType::kF32, {3, 2});
  device::CommandList list;
  list.fill(out, -1);
  list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, 4, 2}))}, {out});
  const Status status = session.submit(list);
  CHECK(metal_double::count(Count::kCommits) == 3);
  CHECK(metal_double::count(Count::kErrors) == (fails ? 1 : 0));
  output = download(out);
  if (!status.ok()) {
    CHECK(session.queue().timeline()->failed());
    CHECK_FALSE(session.submit(list).ok());  // for good
    CHECK(other.run(program, std::vector<ir::Tensor>{ir::Tensor::of_i64({0, 0, 0})}).ok());
  }
  return status;
}

TEST_CASE("the error of a middle command buffer fails the queue for good, with Metal's own text") {
  ir::Tensor output;
  CHECK(run_in_parts(false, {}, output).ok());
  CHECK(output.get(2) == 8);
  Defences trusting;
  trusting.errors_fail_timeline = false;
  CHECK(run_in_parts(true, trusting, output).ok());
  CHECK(output.get(2) == -1);  // which no caller was told of
  const Status failure = run_in_parts(true, {}, output);
  CHECK(failure.code() == Code::device_lost);
  CHECK_MESSAGE(failure.message().find("Internal Error") != std::string::npos, failure.message());
}

TEST_CASE("parts count against Metal's limit of command buffers: no submission is held inside Metal") {
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 3);
  metal_double::set(Fault::kGraphSplits, true);
  Session session(*device);
  const device::View in = upload(*device, ir::Tensor::of_i64({1, 4, 2})),
                     out = empty_like(*device, DType::kF32, {3, 2});
  device::CommandList list;
  list.run(program, *session.arena_for(*program), {in}, {out});
  const Flood result = flood(session, std::vector(70, list));
  CHECK(result.held == 0);
  CHECK(result.last.code() == Code::exhausted);
}

TEST_CASE("handlers in any order: a value is reached when all before it are, and no result is lost") {
  constexpr uint64_t kRuns = 40;
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 3);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    metal_double::seed(seed);
    metal_double::set(Fault::kHandlersOutOfOrder, true);
    Session session(*device);
    std::vector<device::CommandList> lists(kRuns);
    std::vector<Ref<device::RowFaults>> faults;
    for (device::CommandList& list : lists) {
      faults.push_back(std::make_shared<device::RowFaults>(0));
      // Each is wrong, and says so through its handler alone.
      list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, 9, 2}))},
               {empty_like(*device, DType::kF32, {3, 2})}, faults.back());
    }
    for (const device::CommandList& list : lists)
      REQUIRE(session.queue().submit(list, session.next_value(), NoLocksHeld()).ok());
    const auto& timeline = session.queue().timeline();
    bool told = true;
    for (uint64_t reached = 0; reached < kRuns;) {
      reached = timeline->reached();
      for (uint64_t i = 0; i < reached; ++i) told = told && faults[i]->whole().code() == Code::invalid;
      give_way();
    }
    CHECK(told);
    CHECK_FALSE(timeline->failed());
    wait_until([] { return metal_double::count(Count::kHandlers) >= metal_double::count(Count::kCommits); });
    metal_double::set(Fault::kHandlersOutOfOrder, false);
  }
  CHECK(metal_double::count(Count::kHandlersLate) > kRuns);
}

TEST_CASE("handlers in any order: the first error is the queue's, and it fails when nothing runs any more") {
  const Machine machine;
  const auto device = open();
  metal_double::set(Fault::kHandlersOutOfOrder, true);
  for (int round = 0; round < 20; ++round) {
    metal_double::seed(static_cast<uint64_t>(round));
    Session session(*device);
    const device::View view = empty_like(*device, DType::kF32, {8});
    std::vector<device::CommandList> lists(6);
    for (device::CommandList& list : lists) list.fill(view, round);
    metal_double::set(Fault::kCommandBufferError, true);  // of the first that ends
    const uint64_t ended = metal_double::count(Count::kCompletions);
    uint64_t accepted = 0;
    for (const device::CommandList& list : lists) {
      if (!session.queue().submit(list, accepted + 1, NoLocksHeld()).ok()) break;
      ++accepted;
    }
    const auto& timeline = session.queue().timeline();
    const Status failure = timeline->wait(accepted, Deadline::never());
    CHECK(metal_double::count(Count::kCompletions) - ended >= accepted);
    CHECK(failure.code() == Code::device_lost);
    CHECK_MESSAGE(failure.message().find("submission 1 ") != std::string::npos, failure.message());
    CHECK(timeline->reached() == 0);
  }
  CHECK(metal_double::count(Count::kHandlersLate) > 0);
}

}  // namespace
}  // namespace heddle::metal::test
