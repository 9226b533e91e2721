// Runs as CUDA's graphs: when they are built, and what they compute.
#include <doctest/doctest.h>

#include <cstring>

#include "base/thread.h"
#include "device/row_faults.h"
#include "tests/cuda_driver/graphs_fixture.h"
#include "tests/driver_conformance/op_check_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

// Four launches, each of an output.
Ref<const device::Program> without_arena(device::Device& device, int64_t rows) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {rows, kWidth}});
  for (int i = 0; i < 4; ++i)
    b.output(*b.node("Softmax", {x}, {{"axis", int64_t{i % 2}}}, text("softmax ", i)));
  const auto module = device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const ir::Extents extents{rows, kWidth};
  const auto program = (*module)->compile(std::vector{extents}, NoLocksHeld());
  REQUIRE(program.ok());
  REQUIRE((*program)->arena_bytes() == 0);
  return *program;
}

TEST_CASE("addresses that come a second time become a graph, and from then on a run is one call") {
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  const auto device = device_with_graphs();
  const auto program = layers(*device, 5);
  const int steps = launches_of(program);
  REQUIRE(of_cuda(program).fits_graph());
  const Place place = place_of(*device, *program, {x});
  Session session(*device);
  const auto counts = [] {
    return std::vector{calls_of(Call::kLaunch), calls_of(Call::kNode), calls_of(Call::kInstantiate),
                       calls_of(Call::kGraphLaunch)};
  };
  cuda_double::forget_faults();
  REQUIRE(run_at(session, program, place).ok());
  CHECK(counts() == std::vector{steps, 0, 0, 0});
  REQUIRE(run_at(session, program, place).ok());
  CHECK(counts() == std::vector{steps, steps, 1, 1});
  for (int i = 0; i < 10; ++i) REQUIRE(run_at(session, program, place).ok());
  CHECK(counts() == std::vector{steps, steps, 1, 11});
  CHECK(conformance::same_bits(result_at(*device, session, program, place), wanted));
}

TEST_CASE("copies beside a run are part of its graph, which serves what lies in them each time") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 5);
  Session session(*device);
  std::vector<ir::Tensor> questions, answers;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    questions.push_back(rows_of(5, seed));
    answers.push_back(launched_directly(questions.back()));
  }
  Staged staged(*device, *program, questions[0]);
  for (size_t i = 0; i < questions.size(); ++i) {
    staged.put(questions[i]);
    cuda_double::forget_faults();
    REQUIRE(staged.submit(session, program).ok());
    CHECK(calls_of(Call::kGraphLaunch) == (i == 0 ? 0 : 1));
    CHECK(calls_of(Call::kLaunch) == (i == 0 ? launches_of(program) + 2 : 0));
    CHECK(calls_of(Call::kSetKernel) == 0);
    CHECK(staged.holds(answers[i]));
  }
}

TEST_CASE("one graph serves results that go elsewhere each time, and questions that lie elsewhere") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 5);
  Session session(*device);
  std::vector<Staged> kept;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const ir::Tensor x = rows_of(5, seed);
    Staged staged(*device, *program, x);
    if (!kept.empty()) staged.place = kept[0].place;
    const bool as_before = seed > 0 && seed % 3 == 0;
    if (as_before) staged.in = kept.back().in, staged.put(x);
    const ir::Tensor answer = launched_directly(x);
    cuda_double::forget_faults();
    REQUIRE(staged.submit(session, program).ok());
    CHECK(calls_of(Call::kInstantiate) == (seed == 1 ? 1 : 0));
    CHECK(calls_of(Call::kGraphLaunch) == (seed == 0 ? 0 : 1));
    CHECK(calls_of(Call::kSetKernel) == (seed < 2 ? 0 : as_before ? 1 : 2));
    CHECK(staged.holds(answer));
    kept.push_back(std::move(staged));
  }
}

TEST_CASE("a graph whose copies cannot be told where to go is a failure of it, and of no run") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 5);
  Session session(*device);
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  Staged staged(*device, *program, x);
  for (int i = 0; i < 3; ++i) REQUIRE(staged.submit(session, program).ok());
  cuda_double::forget_faults();
  cuda_double::refuse(Call::kSetKernel, kInvalidValue, 0, 1);
  staged.out = Staged::pinned_like(*device, x);
  REQUIRE(staged.submit(session, program).ok());
  CHECK(calls_of(Call::kLaunch) == launches_of(program) + 2);
  CHECK(staged.holds(wanted));
  CHECK(of_cuda(program).graph_failures() == 1);
  std::memset(staged.out.host(), 0, static_cast<size_t>(x.bytes()));
  REQUIRE(staged.submit(session, program).ok());
  CHECK(calls_of(Call::kInstantiate) == 1);
  CHECK(staged.holds(wanted));
}

TEST_CASE("a graph with copies counts twice, since what names their nodes is kept as well") {
  for (const bool enough : {false, true}) {
    const uint64_t once = Graphs::bytes_of(6 + 2);  // three layers, and copies on both sides
    const auto device = device_with_graphs(enough ? 2 * once : 2 * once - 1);
    const auto program = layers(*device, 5);
    REQUIRE(launches_of(program) == 6);
    const Staged staged(*device, *program, rows_of(5, 1));
    Session session(*device);
    cuda_double::forget_faults();
    for (int i = 0; i < 3; ++i) REQUIRE(staged.submit(session, program).ok());
    CHECK(calls_of(Call::kInstantiate) == (enough ? 1 : 0));
  }
}

TEST_CASE("a program of two launches is a graph together with its copies") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 5, 1);
  REQUIRE(launches_of(program) == 2);
  const ir::Tensor x = rows_of(5, 1);
  const Staged staged(*device, *program, x);
  Session session(*device);
  REQUIRE(staged.submit(session, program).ok());
  const std::vector<std::byte> wanted(staged.out.host(), staged.out.host() + x.bytes());
  cuda_double::forget_faults();
  REQUIRE(staged.submit(session, program).ok());
  CHECK(calls_of(Call::kGraphLaunch) == 1);
  CHECK(std::memcmp(staged.out.host(), wanted.data(), wanted.size()) == 0);
}

TEST_CASE("graphs have the bits of direct launches, whatever the number of rows") {
  for (const int64_t rows : {1, 2, 3, 7, 8, 16, 33, 64, 130}) {
    CAPTURE(rows);
    const ir::Tensor x = rows_of(rows, static_cast<uint32_t>(rows)), wanted = launched_directly(x);
    const auto device = device_with_graphs();
    const auto program = layers(*device, rows);
    const Place place = place_of(*device, *program, {x});
    Session session(*device);
    for (int i = 0; i < 4; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, program, place), wanted));
    CHECK(calls_of(Call::kGraphLaunch) == 3);
  }
}

TEST_CASE("an operator of several launches has the same bits as a graph") {
  const auto device = device_with_graphs(uint64_t{1} << 40);
  Session session(*device);
  int compared = 0;
  for (const conformance::Case& each : conformance::all_cases()) {
    const auto operands = conformance::make_operands(each, each.dtypes.front());
    if (!operands.ok()) continue;
    const auto module = device->load(operands->graph, {}, device::plain_source(*device), NoLocksHeld());
    REQUIRE(module.ok());
    const auto program = conformance::compile(**module, operands->inputs);
    if (program.status().code() == heddle::Code::unsupported) continue;
    REQUIRE(program.ok());
    if (!of_cuda(*program).fits_graph() || (*program)->outputs()[0].extents.elements() == 0) continue;
    CAPTURE(std::string(each.op));
    const Place place = place_of(*device, **program, operands->inputs);
    const ir::Tensor direct = result_at(*device, session, *program, place);
    const int before = calls_of(Call::kGraphLaunch);
    for (int i = 0; i < 2; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, *program, place), direct));
    CHECK(calls_of(Call::kGraphLaunch) == before + 2);
    ++compared;
  }
  CHECK(compared >= 10);
}

TEST_CASE("each set of addresses has a graph of its own") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 3);
  std::vector<ir::Tensor> wanted;
  std::vector<Place> places;
  for (uint32_t i = 0; i < 2; ++i) {
    const ir::Tensor x = rows_of(3, i);
    places.push_back(place_of(*device, *program, {x}));
    wanted.push_back(launched_directly(x));
  }
  Session session(*device);
  cuda_double::forget_faults();
  int checked = 0;
  for (int round = 0; round < 4; ++round) {
    for (size_t arena : {0, 1}) {
      for (size_t input : {0, 1}) {
        for (size_t output : {0, 1}) {
          const Place mixed{places[arena].arena, places[input].inputs, places[output].outputs};
          CHECK(conformance::same_bits(result_at(*device, session, program, mixed), wanted[input]));
          ++checked;
        }
      }
    }
  }
  CHECK(calls_of(Call::kInstantiate) == 8);
  CHECK(calls_of(Call::kGraphLaunch) == checked - 8);
}

TEST_CASE("runs whose hashes give the same set take turns, and each becomes a graph") {
  const auto device = device_with_graphs();
  const auto program = layers(*device, 3);
  const ir::Tensor x = rows_of(3, 1), wanted = launched_directly(x);
  const Place place = place_of(*device, *program, {x});
  constexpr uint64_t kStep = 256, kPlaces = Graphs::kSets * 64;
  const Ref<device::Buffer> many =
      device::plain_source(*device)->allocate(kStep * kPlaces, device::MemoryKind::device).value();
  std::vector<Place> same_set;
  for (uint64_t i = 0; i < kPlaces && same_set.size() < Graphs::kWays; ++i) {
    Place each = place;
    each.inputs = {device::View::contiguous(many, x.dtype(), x.extents(), kStep * i)};
    const device::Run run{program, each.arena, each.inputs, each.outputs};
    if (GraphHash()(GraphPlace{run}) % Graphs::kSets == 0) same_set.push_back(each);
  }
  REQUIRE(same_set.size() == Graphs::kWays);
  Session session(*device);
  cuda_double::forget_faults();
  for (int round = 0; round < 3; ++round) {
    for (const Place& each : same_set) {
      device::CommandList list;
      list.copy(place.inputs[0], each.inputs[0]);
      list.run(program, each.arena, each.inputs, each.outputs);
      REQUIRE(session.submit(list).ok());
      CHECK(conformance::same_bits(conformance::download(*device, each.outputs[0]), wanted));
    }
  }
  CHECK(calls_of(Call::kInstantiate) == static_cast<int>(Graphs::kWays));
  CHECK(calls_of(Call::kGraphLaunch) == static_cast<int>(2 * Graphs::kWays));
}

TEST_CASE("what gains nothing from a graph is launched directly") {
  const auto plain = device_with_graphs(), off = device_of({.graph_bytes = 0});
  struct Row {
    const char* what;
    Ref<device::Device> device;
    int layers;
    int64_t rows;
    bool fits;
  };
  for (const Row& row : {Row{"two launches", plain, 1, 4, false},
                         {"no arena", plain, 0, 4, false},
                         {"graphs are switched off", off, 3, 4, true}}) {
    CAPTURE(std::string(row.what));
    const auto program =
        row.layers == 0 ? without_arena(*row.device, row.rows) : layers(*row.device, row.rows, row.layers);
    CHECK(of_cuda(program).fits_graph() == row.fits);
    const Place place = place_of(*row.device, *program, {rows_of(row.rows, 1)});
    Session session(*row.device);
    cuda_double::forget_faults();
    for (int i = 0; i < 4; ++i) REQUIRE(run_at(session, program, place).ok());
    CHECK(calls_of(Call::kLaunch) >= 4);
    CHECK(calls_of(Call::kNode) + calls_of(Call::kGraphLaunch) == 0);
  }
}

TEST_CASE("graphs of a program that is gone serve no other") {
  const auto device = device_with_graphs();
  const ir::Tensor x = rows_of(4, 1);
  Session session(*device);
  const Place place = place_of(*device, *layers(*device, 4), {x});
  for (uint32_t seed = 1; seed < 6; ++seed) {  // the next program may lie where the last one did
    const ir::Tensor wanted = launched_directly(x, seed);
    cuda_double::forget_faults();
    const auto program = layers(*device, 4, 3, seed);
    for (int i = 0; i < 3; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, program, place), wanted));
    CHECK(calls_of(Call::kInstantiate) == 1);
  }
}

TEST_CASE("where there is no more room, graphs of programs that are gone go first") {
  const auto probe = device_with_graphs();
  const auto each = Graphs::bytes_of(static_cast<size_t>(launches_of(layers(*probe, 4))));
  const auto device = device_with_graphs(4 * each);
  Session session(*device);
  const auto kept = layers(*device, 4);
  const Place place = place_of(*device, *kept, {rows_of(4, 1)});
  const auto repeat = [&](const Ref<const device::Program>& program, uint32_t runs) {
    for (uint32_t i = 0; i < runs; ++i) REQUIRE(run_at(session, program, place).ok());
  };
  const int live = cuda_double::live_graphs();
  repeat(kept, 2);
  for (int i = 0; i < 3; ++i) repeat(layers(*device, 4), 2);
  CHECK(cuda_double::live_graphs() == live + 4);
  const auto next = layers(*device, 4);
  repeat(next, Graphs::kRunsPerReplacement + 1);
  CHECK(cuda_double::live_graphs() == live + 2);
  cuda_double::forget_faults();
  repeat(kept, 3);
  repeat(next, 3);
  CHECK(calls_of(Call::kGraphLaunch) == 6);
}

TEST_CASE("places that go from thread to thread keep one graph each, and every answer is its question's") {
  constexpr int kWorkers = 4, kRuns = 120;
  constexpr uint32_t kInputs = 8;
  const auto device = device_with_graphs();
  const auto program = layers(*device, 3);
  std::vector<ir::Tensor> inputs, wanted;
  for (uint32_t i = 0; i < kInputs; ++i) {
    inputs.push_back(rows_of(3, i));
    wanted.push_back(launched_directly(inputs.back()));
  }
  std::vector<device::View> given;
  for (const ir::Tensor& each : inputs) given.push_back(conformance::upload(*device, each));
  Guarded<std::vector<Place>, Rank::kPool> idle;
  for (int i = 0; i < kWorkers; ++i) {
    Place place = place_of(*device, *program, {inputs[0]});
    idle.lock()->push_back(std::move(place));
  }
  cuda_double::forget_faults();
  Atomic<int> right{0};
  run_together(kWorkers, [&](int thread) {
    Session session(*device);
    for (int i = 0; i < kRuns; ++i) {
      const auto which = static_cast<size_t>(thread * kRuns + i) % kInputs;
      Place place;
      {
        const auto all = idle.lock();
        place = std::move(all->back());
        all->pop_back();
      }
      device::CommandList list;
      list.copy(given[which], place.inputs[0]);
      list.run(program, place.arena, place.inputs, place.outputs);
      if (session.submit(list).ok() &&
          conformance::same_bits(conformance::download(*device, place.outputs[0]), wanted[which]))
        right.add_relaxed(1);
      const auto all = idle.lock();
      all->insert(all->begin(), std::move(place));  // the next thread takes another
    }
  });
  CHECK(right.load_relaxed() == kWorkers * kRuns);
  CHECK(calls_of(Call::kInstantiate) == kWorkers);
  // Two threads that begin at once in one set may forget a run.
  CHECK(calls_of(Call::kGraphLaunch) >= kWorkers * (kRuns - 2));
}

// Of four rows each, and what they are answered.
struct Questions {
  std::vector<Place> places;
  std::vector<ir::Tensor> wanted;
};
Questions questions_of(device::Device& device, const device::Program& program, uint32_t count) {
  Questions made;
  for (uint32_t i = 0; i < count; ++i) {
    const ir::Tensor x = rows_of(4, i);
    made.places.push_back(place_of(device, program, {x}));
    made.wanted.push_back(launched_directly(x));
  }
  return made;
}

TEST_CASE("more addresses than there is room for: all right, and building stays rare") {
  const auto probe = device_with_graphs();
  const uint64_t each = Graphs::bytes_of(static_cast<size_t>(launches_of(layers(*probe, 4))));
  const auto device = device_with_graphs(2 * each);
  const auto program = layers(*device, 4);
  Session session(*device);
  const Questions asked = questions_of(*device, *program, 5);
  cuda_double::forget_faults();
  const int live = cuda_double::live_graphs();
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < asked.places.size(); ++i) {
      CHECK(conformance::same_bits(result_at(*device, session, program, asked.places[i]), asked.wanted[i]));
      CHECK(cuda_double::live_graphs() <= live + 2);
    }
  }
  CHECK(calls_of(Call::kInstantiate) > 2);
  CHECK(calls_of(Call::kInstantiate) <= 3 + kRounds * 5 / static_cast<int>(Graphs::kRunsPerReplacement));
  // Whoever is left alone gets its graph.
  for (uint32_t i = 0; i <= Graphs::kRunsPerReplacement; ++i)
    REQUIRE(run_at(session, program, asked.places[0]).ok());
  const int launches = calls_of(Call::kLaunch);
  REQUIRE(run_at(session, program, asked.places[0]).ok());
  CHECK(calls_of(Call::kLaunch) == launches);

  const auto narrow = device_with_graphs(each - 1);
  const auto none = layers(*narrow, 4);
  const Place place = place_of(*narrow, *none, {rows_of(4, 1)});
  Session other(*narrow);
  for (int i = 0; i < 40; ++i) REQUIRE(run_at(other, none, place).ok());
  CHECK(calls_of(Call::kNode) == 0);
}

TEST_CASE("where there is no more room, a graph that runs stays and an idle one goes") {
  const auto probe = device_with_graphs();
  const uint64_t each = Graphs::bytes_of(static_cast<size_t>(launches_of(layers(*probe, 4))));
  const auto device = device_with_graphs(3 * each);
  const auto program = layers(*device, 4);
  Session session(*device);
  const Questions asked = questions_of(*device, *program, 4);
  const auto is_graph = [&](size_t i) {
    const int graphs = calls_of(Call::kGraphLaunch);
    CHECK(conformance::same_bits(result_at(*device, session, program, asked.places[i]), asked.wanted[i]));
    return calls_of(Call::kGraphLaunch) > graphs;
  };
  for (size_t place = 0; place < 3; ++place) {
    for (int i = 0; i < 2; ++i) static_cast<void>(is_graph(place));
  }
  for (uint32_t i = 0; i <= Graphs::kRunsPerReplacement; ++i) {  // 2 runs no more
    static_cast<void>(is_graph(3));
    CHECK(is_graph(0));
    CHECK(is_graph(1));
  }
  CHECK(is_graph(3));
  CHECK_FALSE(is_graph(2));
}

TEST_CASE("a graph whose place another takes ends what it has begun") {
  const auto probe = device_with_graphs();
  const auto device =
      device_with_graphs(Graphs::bytes_of(static_cast<size_t>(launches_of(layers(*probe, 4)))));
  const auto program = layers(*device, 4);
  const ir::Tensor x = rows_of(4, 1), y = rows_of(4, 2);
  const Place first = place_of(*device, *program, {x}), second = place_of(*device, *program, {y});
  Session session(*device);
  for (int i = 0; i < 2; ++i) REQUIRE(run_at(session, program, first).ok());
  const auto gate = cuda_double::make_held_event();
  const device::Point held = device->import_event({gate, 0, nullptr}, NoLocksHeld()).value();
  const auto queue = device->make_queue(NoLocksHeld()).value();
  device::CommandList waiting;
  waiting.wait(held);
  waiting.fill(first.outputs[0], -1);
  waiting.run(program, first.arena, first.inputs, first.outputs);
  const int live = cuda_double::live_graphs();
  REQUIRE(queue->submit(waiting, 1, NoLocksHeld()).ok());
  const int before = calls_of(Call::kInstantiate);
  for (int i = 0; i < 2; ++i) REQUIRE(run_at(session, program, second).ok());
  CHECK(calls_of(Call::kInstantiate) == before + 1);
  CHECK(cuda_double::live_graphs() == live);
  cuda_double::reach(gate);
  REQUIRE(queue->timeline()->wait(1, Deadline::never()).ok());
  CHECK(conformance::same_bits(conformance::download(*device, first.outputs[0]), launched_directly(x)));
}

TEST_CASE("what is wrong with the data a graph says as launches do, run by run") {
  const auto device = device_with_graphs();
  ir::Builder b;
  const ir::ValueId indices = b.input("indices", {ir::DType::kI64, {3}});
  ir::ValueId x = *b.node("Gather", {b.constant(rows_of(4, 1)), indices}, {}, "lookup");
  for (int i = 0; i < 2; ++i) {
    x = *b.node("MatMul", {x, b.constant(rows_of(kWidth, 2))});
    x = *b.node("Softmax", {x}, {{"axis", int64_t{-1}}});
  }
  b.output(x);
  const auto module = device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
  REQUIRE(module.ok());
  const ir::Tensor good = ir::Tensor::of_i64({0, 1, -1}), bad = ir::Tensor::of_i64({0, 4, 1});
  const auto program = conformance::compile(**module, {good});
  REQUIRE(program.ok());
  REQUIRE(of_cuda(*program).fits_graph());
  const Place place = place_of(*device, **program, {good});
  const device::View of_good = conformance::upload(*device, good), of_bad = conformance::upload(*device, bad);
  Session session(*device);
  cuda_double::forget_faults();
  for (int round = 0; round < 9; ++round) {
    CAPTURE(round);
    const bool wrong = round % 3 == 1;
    const auto faults = std::make_shared<device::RowFaults>(0);
    device::CommandList list;
    list.copy(wrong ? of_bad : of_good, place.inputs[0]);
    list.run(*program, place.arena, place.inputs, place.outputs, faults);
    REQUIRE(session.submit(list).ok());
    CHECK(faults->whole().ok() == !wrong);
    if (wrong) CHECK(faults->whole().message().find("lookup") != std::string::npos);
  }
  CHECK(calls_of(Call::kInstantiate) == 1);
  CHECK(calls_of(Call::kGraphLaunch) == 8);

  // Flags of its neighbour are none of a run's business.
  const auto plain = layers(*device, 4);
  const Place other = place_of(*device, *plain, {rows_of(4, 1)});
  for (int i = 0; i < 2; ++i) REQUIRE(run_at(session, plain, other).ok());
  device::CommandList both;
  both.copy(of_good, place.inputs[0]);
  both.run(*program, place.arena, place.inputs, place.outputs);
  both.run(plain, other.arena, other.inputs, other.outputs);
  const int before = calls_of(Call::kGraphLaunch);
  REQUIRE(session.submit(both).ok());
  CHECK(calls_of(Call::kGraphLaunch) == before + 2);
}

}  // namespace
}  // namespace heddle::cuda
