// What the data shows, memory of the caller, and many threads, on the Metal driver itself.
#include <cstdlib>
#include <cstring>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "metal_driver_fixture.h"

namespace heddle::metal::test {
namespace {

TEST_CASE("a mistake in one caller's row is that row's, and the others have their values") {
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 4);
  Session session(*device);
  const device::View out = empty_like(*device, DType::kF32, {4, 2});
  const auto faults = std::make_shared<device::RowFaults>(4);
  device::CommandList list;
  list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, -6, 4, 0}))}, {out},
           faults);
  REQUIRE(session.submit(list).ok());
  CHECK(faults->whole().ok());
  CHECK(faults->count() == 1);
  CHECK(faults->of(1).code() == Code::invalid);
  CHECK(faults->of(1).message().find("lookup") != std::string::npos);
  for (const int64_t row : {0, 2, 3}) CHECK(download(out).get(2 * row) == (row == 0 ? 2 : row == 2 ? 8 : 0));
}

TEST_CASE("what reads the output of a run that is wrong as a whole is wrong as well") {
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 3);
  Session session(*device);
  const device::View out = empty_like(*device, DType::kF32, {3, 2}),
                     next = empty_like(*device, DType::kF32, {3, 2});
  const auto first = std::make_shared<device::RowFaults>(0), second = std::make_shared<device::RowFaults>(0);
  device::CommandList list;
  list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, 9, 2}))}, {out},
           first);
  list.run(program, *session.arena_for(*program), {upload(*device, ir::Tensor::of_i64({1, 2, 2}))}, {next},
           second);
  std::get<device::Run>(*(list.end() - 1)).sources.push_back(first);
  REQUIRE(session.submit(list).ok());
  CHECK(second->whole().message() == first->whole().message());
  CHECK_FALSE(second->whole().ok());
}

// Aligned as asked, and as large as whole pages.
struct CallerMemory {
  explicit CallerMemory(int64_t elements, size_t offset)
      : block(std::aligned_alloc(16384, (static_cast<size_t>(elements) * 4 / 16384 + 2) * 16384)),
        data(static_cast<std::byte*>(block) + offset) {}
  ~CallerMemory() { std::free(block); }
  CallerMemory(const CallerMemory&) = delete;
  CallerMemory& operator=(const CallerMemory&) = delete;
  void* block;
  std::byte* data;
};

TEST_CASE("memory of the caller is mapped from the begin of a page on, and refused elsewhere") {
  const Machine machine;
  const auto device = open();
  Session session(*device);
  for (const size_t offset : {size_t{0}, size_t{4}, size_t{3}}) {
    for (const int64_t elements : {1, 100, 40000}) {
      CallerMemory from(elements, offset), to(elements, offset);
      for (int64_t i = 0; i < elements; ++i) {
        const auto value = static_cast<float>(i);
        std::memcpy(from.data + 4 * i, &value, 4);
      }
      const auto view = [&](CallerMemory& memory) {
        return device::View::contiguous(memory.data, DType::kF32, {elements});
      };
      const device::View between = empty_like(*device, DType::kF32, {elements});
      device::CommandList list;
      list.copy(view(from), between);
      list.copy(between, view(to));
      const Status status = session.submit(list);
      if (offset != 0) {
        CHECK(status.code() == Code::invalid);
        continue;
      }
      REQUIRE(status.ok());
      CHECK(std::memcmp(from.data, to.data, static_cast<size_t>(elements) * 4) == 0);
    }
  }
}

// The compiler refuses the next program that it is given: were it given one, a run would fail, and the one
// behind the runs would not.
TEST_CASE("runs of a compiled program compile nothing, however many threads encode it") {
  constexpr int kThreads = 4, kRuns = 10;
  const Machine machine;
  const auto device = open();
  ir::Builder b;
  b.output(*b.node("Exp", {b.input("x", {DType::kF32, {ir::Dim::symbol("batch")}})}));
  const auto module = *device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
  const std::vector<Extents> two = {{2}}, three = {{3}};
  const auto program = *module->compile(two, NoLocksHeld());
  metal_double::set(Fault::kGraphCompileFailure, true);
  Atomic<int> right{0};
  run_together(kThreads, [&](int) {
    Session own(*device);
    for (int i = 0; i < kRuns; ++i) {
      const auto got = own.run(program, std::vector<ir::Tensor>{numbers({2}, 0)});
      right.add_relaxed(got.ok() && (*got)[0].get(0) == 1 ? 1 : 0);
    }
  });
  CHECK(right.load_acquire() == kThreads * kRuns);
  CHECK(metal_double::is_on(Fault::kGraphCompileFailure));
  CHECK_FALSE(module->compile(three, NoLocksHeld()).ok());
  CHECK_FALSE(metal_double::is_on(Fault::kGraphCompileFailure));
}

TEST_CASE("thirty-one threads run a hundred submissions each: none lost, all right, none refused by Metal") {
  constexpr int kThreads = 31, kRuns = 100;
  const Machine machine;
  const auto device = open();
  const auto program = lookup(*device, 3);
  Atomic<int> right{0};
  const uint64_t before = metal_double::count(Count::kCommits);
  run_together(kThreads, [&](int thread) {
    Session own(*device);
    for (int i = 0; i < kRuns; ++i) {
      const int64_t index = (thread + i) % 5;
      const auto got = own.run(program, std::vector<ir::Tensor>{ir::Tensor::of_i64({index, 0, 4})});
      const bool same =
          got.ok() && (*got)[0].get(0) == 2.0 * static_cast<double>(index) && (*got)[0].get(5) == 9;
      right.add_relaxed(same ? 1 : 0);
    }
  });
  CHECK(right.load_acquire() == kThreads * kRuns);
  // An upload, the output's fill, the run, a download.
  CHECK(metal_double::count(Count::kCommits) - before == 4 * kThreads * kRuns);
  CHECK(metal_double::count(Count::kErrors) == 0);
  CHECK(metal_double::count(Count::kQueueWaits) == 0);
}

TEST_CASE("the device tells system, chip, limits, and a defence for each known fault") {
  const Machine machine;
  const auto device = open();
  const device::Traits& traits = device->traits();
  for (const char* name : {"system", "chip", "Metal family", "largest buffer", "submissions in flight"}) {
    bool found = false;
    for (const device::Fact& fact : traits.facts) found = found || (fact.name == name && !fact.value.empty());
    CHECK_MESSAGE(found, std::string(name));
  }
  CHECK(traits.defences.size() >= 5);
  for (const device::Fact& fault : traits.defences) CHECK_FALSE(fault.value.empty());
}

}  // namespace
}  // namespace heddle::metal::test
