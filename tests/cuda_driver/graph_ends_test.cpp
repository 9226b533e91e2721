// Graphs that tell of their end, and submissions of which their stream does.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "drivers/cuda/kernels/tell.h"
#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

// A program with what it is asked, at one place.
struct Asked {
  Ref<device::Device> device = device_with_graphs();
  Ref<const device::Program> program = layers(*device, 5);
  ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  Staged staged{*device, *program, x};

  // Whether the answer is right; what was there before is not.
  bool answers(Session& session) const {
    forget();
    REQUIRE(staged.submit(session, program).ok());
    return staged.holds(wanted);
  }
  void forget() const { std::memset(staged.out.host(), 0, static_cast<size_t>(x.bytes())); }
};

TEST_CASE("a graph that ends a submission with a copy to the host tells of its end, and no stream does") {
  const Asked a;
  const Staged& staged = a.staged;
  Session session(*a.device);
  const device::View there = conformance::empty_like(*a.device, a.x.dtype(), a.x.extents());
  struct Ends {
    const char* with;
    bool tells;
    std::function<void(device::CommandList&)> add;
  };
  const Ends cases[] = {
      {"the copy to the host", true, [](auto&) {}},
      {"a copy from the host", false, [&](auto& list) { list.copy(staged.in, there); }},
      {"two copies to the host", true, [&](auto& list) { list.copy(staged.place.outputs[0], staged.out); }},
      {"a fill", false, [&](auto& list) { list.fill(there, 1); }},
      {"the run once more", false,
       [&](auto& list) {
         list.run(a.program, staged.place.arena, staged.place.inputs, staged.place.outputs);
       }},
  };
  for (const auto& [with, tells, add] : cases) {
    CAPTURE(with);
    for (int time = 0; time < 4; ++time) {
      device::CommandList list = staged.list_for(a.program);
      add(list);
      a.forget();
      cuda_double::forget_faults();
      REQUIRE(session.submit(list).ok());
      CHECK(staged.holds(a.wanted));
      if (time > 1) CHECK(calls_of(Call::kWrite) == (tells ? 0 : 1));
    }
  }
}

TEST_CASE("one graph tells of its ends on several streams in turn, each its own values") {
  const Asked a;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(std::make_unique<Session>(*a.device));
  cuda_double::forget_faults();
  for (size_t time = 0; time < 30; ++time) CHECK(a.answers(*sessions[time * time % 3]));
  CHECK(calls_of(Call::kInstantiate) == 1);
  CHECK(calls_of(Call::kWrite) == 1);
}

TEST_CASE("a copy that one block would make too slowly ends a graph of which the stream tells") {
  for (const int64_t rows : {4096, 4097}) {  // of 32 bytes
    const auto device = device_with_graphs();
    const auto program = layers(*device, rows);
    Session session(*device);
    const ir::Tensor x = rows_of(rows, 1), wanted = launched_directly(x);
    const Staged staged(*device, *program, x);
    for (int time = 0; time < 3; ++time) {
      cuda_double::forget_faults();
      REQUIRE(staged.submit(session, program).ok());
      CHECK(calls_of(Call::kGraphLaunch) == (time > 0 ? 1 : 0));
      CHECK(calls_of(Call::kWrite) == (time > 0 && rows == 4096 ? 0 : 1));
      CHECK(staged.holds(wanted));
    }
  }
}

TEST_CASE("the copy that tells copies each byte and none beyond, wherever it begins") {
  constexpr size_t kRoom = 5000, kGuard = 32;
  alignas(16) static std::byte from[kRoom], to[kRoom];
  for (size_t i = 0; i < kRoom; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const uint64_t bytes : {1, 2, 3, 4, 7, 8, 12, 15, 16, 20, 24, 31, 48, 100, 1023, 4096, 4100}) {
    for (const size_t offset : {0, 1, 2, 4, 8}) {
      CAPTURE(bytes);
      CAPTURE(offset);
      std::fill(std::begin(to), std::end(to), std::byte{0});
      uint64_t word = 0;
      const Ticket ticket{reinterpret_cast<uint64_t>(&word), bytes + offset};
      std::byte* const target = to + kGuard + offset;
      const CopyAndTell kernel{{bytes, reinterpret_cast<uint64_t>(from + offset),
                                reinterpret_cast<uint64_t>(target), reinterpret_cast<uint64_t>(&ticket)}};
      HostBlock block(0, 1, CopyAndTell::kThreads, 0, bytes);
      kernel(block);
      CHECK(word == bytes + offset);
      CHECK(std::memcmp(target, from + offset, bytes) == 0);
      CHECK(std::all_of(std::begin(to), target, [](std::byte each) { return each == std::byte{0}; }));
      CHECK(std::all_of(target + bytes, std::end(to), [](std::byte each) { return each == std::byte{0}; }));
    }
  }
}

// The address sanitizer looks at what ends last.
TEST_CASE("a timeline may outlive the device whose graph told it of its last submission") {
  const int others = cuda_double::live_graphs();
  device::Point last;
  {
    const Asked a;
    Session session(*a.device);
    cuda_double::forget_faults();
    for (int time = 0; time < 4; ++time) CHECK(a.answers(session));
    CHECK(calls_of(Call::kWrite) == 1);
    last = {session.queue().timeline(), session.next_value() - 1};
    CHECK(cuda_double::live_graphs() > others);
  }
  CHECK(cuda_double::live_graphs() == others);
  CHECK(last.done());
}

TEST_CASE("a submission whose graph cannot be launched is told of by the stream") {
  const Asked a;
  Session session(*a.device);
  for (int time = 0; time < 2; ++time) CHECK(a.answers(session));
  for (const bool refused : {true, false}) {
    cuda_double::forget_faults();
    if (refused) cuda_double::refuse(Call::kGraphLaunch, kInvalidValue, 0, 1);
    CHECK(a.answers(session));
    CHECK(calls_of(Call::kWrite) == (refused ? 1 : 0));
  }
}

TEST_CASE("a graph for whose end no memory can be pinned is one, and the stream tells") {
  const Asked a;
  Session session(*a.device);
  CHECK(a.answers(session));
  cuda_double::forget_faults();
  cuda_double::refuse(Call::kPin, kOutOfMemory, 0, 1);
  for (int time = 0; time < 3; ++time) CHECK(a.answers(session));
  CHECK(calls_of(Call::kInstantiate) == 1);
  CHECK(calls_of(Call::kGraphLaunch) == 3);
  CHECK(calls_of(Call::kWrite) == 3);
}

TEST_CASE("what a graph tells by lives until it has, though the graph may be gone before") {
  const auto device = device_with_graphs(2 * Graphs::bytes_of(6 + 2));  // room for one
  const auto program = layers(*device, 5);
  Session held(*device), other(*device);
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  std::vector<Staged> staged;
  for (int i = 0; i < 3; ++i) staged.emplace_back(*device, *program, x);
  for (int time = 0; time < 2; ++time) REQUIRE(staged[0].submit(held, program).ok());

  const EventHandle event = cuda_double::make_held_event();
  const auto gate = device->import_event({event}, NoLocksHeld());
  REQUIRE(gate.ok());
  device::CommandList list = staged[0].list_for(program);
  list.wait_first({*gate});
  std::memset(staged[0].out.host(), 0, static_cast<size_t>(x.bytes()));
  const device::Point end{held.queue().timeline(), held.next_value()};
  cuda_double::forget_faults();
  REQUIRE(held.queue().submit(list, end.value, NoLocksHeld()).ok());
  CHECK(calls_of(Call::kGraphLaunch) == 1);
  CHECK(calls_of(Call::kWrite) == 0);
  for (size_t time = 0; time < 200; ++time) {  // its graph goes, and others come
    const Staged& at = staged[1 + time / 2 % 2];
    std::memset(at.out.host(), 0, static_cast<size_t>(x.bytes()));
    REQUIRE(at.submit(other, program).ok());
    CHECK(at.holds(wanted));
  }
  CHECK(calls_of(Call::kInstantiate) > 2);
  CHECK(calls_of(Call::kPin) < calls_of(Call::kInstantiate));  // tickets are taken again
  CHECK_FALSE(end.timeline->done(end.value));
  cuda_double::reach(event);
  REQUIRE(end.timeline->wait(end.value, Deadline::in(std::chrono::seconds(20))).ok());
  CHECK(staged[0].holds(wanted));
}

}  // namespace
}  // namespace heddle::cuda
