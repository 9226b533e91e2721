// Which choices of cuBLASLt's algorithms outlive a device, and which are made anew.
#include <doctest/doctest.h>

#include <fstream>

#include "base/kept_lines.h"
#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/host/machine/folder_fixture.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using host::TestFolder;
using Counts = std::vector<int64_t>;

Counts runs_so_far() {
  return {cuda_double::blas_lt_runs(0), cuda_double::blas_lt_runs(1), cuda_double::blas_lt_runs(2)};
}

struct Opened {
  std::vector<std::string> warnings;
  Ref<device::Device> device;
};

// With the choices that lie in `folder`.
std::unique_ptr<Opened> open_with(const std::string& folder, const BlasLtApi& api = cuda_double::blas_lt(),
                                  bool tunes = true) {
  auto opened = std::make_unique<Opened>();
  const auto warn = [to = &opened->warnings](const std::string& what) { to->push_back(what); };
  const auto made = make_cuda_device({.api = &cuda_double::api(),
                                      .image = cuda_double::image(),
                                      .blas = &api,
                                      .tuning = {.on = tunes, .folder = folder, .warn = warn}});
  REQUIRE(made.ok());
  opened->device = *made;
  return opened;
}

std::string said_of_choices(const Opened& opened) {
  for (const device::Fact& each : opened.device->traits().facts) {
    if (each.name == "cuBLASLt's algorithms") return each.value;
  }
  return "";
}

// Whether anything ran while a product of so many rows was compiled; then runs it, by `algorithm`.
bool measures(const Opened& opened, int64_t rows, size_t algorithm = 1) {
  ir::Builder b;
  const std::vector<ir::Tensor> inputs = {conformance::random_tensor(ir::DType::kF16, {rows, 8}, 1),
                                          conformance::random_tensor(ir::DType::kF16, {8, 6}, 2)};
  b.output(*b.node("MatMul", {b.input("x", inputs[0].type()), b.input("y", inputs[1].type())}));
  const ir::Graph graph = *b.take();
  device::Device& device = *opened.device;
  const auto module = device.load(graph, {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const Counts before = runs_so_far();
  const auto program = conformance::compile(**module, inputs);
  REQUIRE(program.ok());
  const Counts compiled = runs_so_far();
  const auto got = conformance::Session(device).run(*program, inputs);
  REQUIRE(got.ok());
  CHECK(conformance::difference(got->front(), ir::evaluate(graph, inputs)->front(), {4e-3, 4e-3}) == "");
  Counts run = compiled;
  ++run[algorithm];
  CHECK(runs_so_far() == run);
  return compiled != before;
}

std::string file_in(const TestFolder& folder) {
  for (const auto& each : std::filesystem::directory_iterator(folder.path())) {
    if (each.path().extension() == ".txt") return each.path().string();
  }
  return "";
}

TEST_CASE("what one device has measured the next one takes from the file, with the same algorithm") {
  const TestFolder folder;
  CHECK(measures(*open_with(folder.path()), 20));
  const auto second = open_with(folder.path());
  CHECK(said_of_choices(*second) == text("kept in ", file_in(folder), ": 1"));
  CHECK(!measures(*second, 20));
  CHECK(!measures(*second, 21));  // 17 to 24 rows are alike
  CHECK(measures(*second, 25));
  CHECK(!measures(*open_with(folder.path()), 25));
  CHECK(!measures(*open_with(folder.path()), 20));
  CHECK(measures(*open_with(""), 20));
  CHECK(said_of_choices(*open_with("")) == "measured, not kept: there is no folder for them");
}

TEST_CASE("the algorithm that the GPU runs in the least time is chosen, however long the host takes for it") {
  BlasLtApi slow = cuda_double::blas_lt();
  slow.multiply = [](auto... arguments) {
    constexpr size_t kAlgorithm = 12;  // of cublasLtMatmul's arguments
    const bool fast = std::get<kAlgorithm>(std::tuple(arguments...))->data[0] == 1;
    const TimePoint end = Clock::real().now() + std::chrono::milliseconds(fast ? 1 : 0);
    while (Clock::real().now() < end) {
    }
    return cuda_double::blas_lt().multiply(arguments...);
  };
  CHECK(measures(*open_with("", slow), 20, 1));
}

TEST_CASE("another version of the library measures anew, and takes nothing from the first") {
  const TestFolder folder;
  CHECK(measures(*open_with(folder.path()), 20));
  BlasLtApi newer = cuda_double::blas_lt();
  newer.version = [] { return size_t{130102}; };
  CHECK(measures(*open_with(folder.path(), newer), 20));
  CHECK(!measures(*open_with(folder.path(), newer), 20));
  CHECK(!measures(*open_with(folder.path()), 20));
}

TEST_CASE("an algorithm that the library does not propose is never run: it is measured anew, and gives way") {
  const TestFolder folder;
  CHECK(measures(*open_with(folder.path()), 20));
  BlasLtApi other = cuda_double::blas_lt();
  other.heuristics = [](auto... arguments) {
    const auto all = std::tuple(arguments...);
    const BlasCode code = cuda_double::blas_lt().heuristics(arguments...);
    for (int i = 0; i < *std::get<9>(all); ++i) std::get<8>(all)[i].algorithm.data[7] = 5;
    return code;
  };
  CHECK(measures(*open_with(folder.path(), other), 20));
  CHECK(!measures(*open_with(folder.path(), other), 20));
  CHECK(measures(*open_with(folder.path()), 20));
}

TEST_CASE("a file that is damaged, or holds what is no choice, is told and measured anew") {
  const TestFolder folder;
  CHECK(measures(*open_with(folder.path()), 20));
  const std::string path = file_in(folder);
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const size_t title = whole.find('\n') + 1, identity = whole.find('\n', title);
  const std::string who = whole.substr(title + 4, identity - title - 4);
  CHECK(who == "CUDA double; compute capability 9.0; 4 multiprocessors; kernels 5; cuBLASLt 13.1.1");
  const KeptLines lines(folder.path(), "cublaslt", "heddle cublaslt 1", who);
  REQUIRE(lines.path() == path);
  const Lines good = *lines.read();
  REQUIRE(good.size() == 1);
  const auto put = [&](const std::string& line) {
    REQUIRE(lines.rewrite([&](Lines) { return Lines{line}; }).ok());
  };
  for (const std::string& wrong :
       {std::string("heddle"), whole.substr(0, whole.size() / 2), whole + "more\n"}) {
    std::ofstream(path, std::ios::binary) << wrong;
    const auto opened = open_with(folder.path());
    CHECK(said_of_choices(*opened) == text("measured anew: '", path, "': it is cut off or was changed"));
    CHECK(opened->warnings.size() == 1);
    CHECK(measures(*opened, 20));
    CHECK(!measures(*open_with(folder.path()), 20));
  }
  struct Row {
    std::string line;
    bool told;
  };
  for (const Row& wrong :
       {Row{"product", true}, Row{good[0] + " 1", false}, Row{good[0].substr(0, good[0].size() - 2), false},
        Row{good[0] + "x", false}, Row{"no " + good[0], false}}) {
    CAPTURE(wrong.line);
    put(wrong.line);
    const auto opened = open_with(folder.path());
    if (wrong.told)
      CHECK(said_of_choices(*opened) == text("measured anew: '", path, "': a line of it is no choice"));
    CHECK(measures(*opened, 20));
    CHECK(!measures(*open_with(folder.path()), 20));
  }
}

TEST_CASE("a folder that cannot be written is told once, and choices hold for the device") {
  const TestFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  const auto opened = open_with(folder.path() + "/file/below");
  CHECK(measures(*opened, 20));
  CHECK(measures(*opened, 25));
  CHECK(!measures(*opened, 20));
  REQUIRE(opened->warnings.size() == 1);
  CHECK(opened->warnings[0].find("kept for this process only") != std::string::npos);
  CHECK(opened->warnings[0].find("/file/below") != std::string::npos);
}

TEST_CASE("where nothing is to be measured the library's first proposal runs, and no file is made") {
  const TestFolder folder;
  const auto opened = open_with(folder.path(), cuda_double::blas_lt(), false);
  CHECK(!measures(*opened, 20, 0));
  CHECK(file_in(folder).empty());
  CHECK(said_of_choices(*opened) == "by rule: HEDDLE_TUNE is off");
}

TEST_CASE("stores of several threads lose nothing of each other's, and the older choice stays") {
  constexpr int kThreads = 4, kEach = 6;
  const TestFolder folder;
  const LibraryTuning tuning{.folder = folder.path()};
  const auto problem = [](int number) { return text("product ", number); };
  const auto algorithm = [](int number) { return text(number, " 7"); };
  run_together(kThreads, [&](int thread) {
    AlgorithmStore mine(tuning, "cublaslt", "a GPU");
    for (int i = thread * kEach; i < (thread + 1) * kEach; ++i) {
      do mine.keep(problem(i), algorithm(i), false);
      while (
          !AlgorithmStore(tuning, "cublaslt", "a GPU").find(problem(i)).has_value());  // others had the lock
    }
  });
  const auto store = [&](const char* library, const char* gpu) {
    return std::make_unique<AlgorithmStore>(tuning, library, gpu);
  };
  const auto all = store("cublaslt", "a GPU");
  for (int i = 0; i < kThreads * kEach; ++i) CHECK(all->find(problem(i)) == algorithm(i));
  CHECK(store("cublaslt", "a GPU")->keep(problem(1), algorithm(9), false) == algorithm(1));
  CHECK(store("cublaslt", "a GPU")->keep(problem(1), algorithm(9), true) == algorithm(9));
  CHECK(store("cublaslt", "a GPU")->find(problem(1)) == algorithm(9));
  CHECK(!store("cublaslt", "another GPU")->find(problem(1)).has_value());
  CHECK(!store("cudnn", "a GPU")->find(problem(1)).has_value());
}

}  // namespace
}  // namespace heddle::cuda
