// How often NVRTC compiles, what outlives a process, and what happens where it cannot.
#include <doctest/doctest.h>

#include <fstream>

#include "base/kept_file.h"
#include "base/thread.h"
#include "drivers/cuda/libraries/compiled_kernels.h"
#include "drivers/host/machine/folder_fixture.h"
#include "tests/cuda_driver/compiled_chain_fixture.h"

namespace heddle::cuda {
namespace {

namespace fs = std::filesystem;
using namespace compiled_chain_fixture;  // NOLINT: words of these tests
using cuda_double::Call;
using host::TestFolder;

struct Warned {
  Guarded<std::vector<std::string>, Rank::kLog> lines;
  auto hear() {
    return [this](const std::string& line) { lines.lock()->push_back(line); };
  }
  std::vector<std::string> said() { return *lines.lock(); }
};

CudaOptions keeping_in(const std::string& folder, Warned& warned,
                       const NvrtcApi& nvrtc = cuda_double::nvrtc()) {
  CudaOptions options = compiling(nvrtc);
  options.tuning = {.on = false, .folder = folder, .warn = warned.hear()};
  return options;
}

// How often NVRTC compiled for one more device, whose chain is right.
int compiles_of_a_device(const CudaOptions& options) {
  const ChainModel chain = row_chain({6, 8});
  const int before = cuda_double::compiled_so_far();
  const Ref<device::Device> device = opened(options), other = opened(interpreting());
  const auto program = compile_chain(*device, chain), wanted = compile_chain(*other, chain);
  REQUIRE(program.ok());
  REQUIRE(wanted.ok());
  CHECK(is_compiled(**program));
  CHECK(conformance::same_bits(outputs_of(*device, **program, chain)[0],
                               outputs_of(*other, **wanted, chain)[0]));
  return cuda_double::compiled_so_far() - before;
}

std::string fact(const device::Device& device, std::string_view name) {
  for (const device::Fact& each : device.traits().facts) {
    if (each.name == name) return each.value;
  }
  return "";
}

std::string planned_path(device::Device& device, const ChainModel& chain) {
  const auto module = device.load(chain.graph, {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  std::vector<ir::Extents> shapes;
  for (const ir::Tensor& input : chain.inputs) shapes.push_back(input.extents());
  const auto plan = (*module)->plan(shapes, UINT64_MAX, NoLocksHeld());
  REQUIRE(plan.ok());
  return plan->nodes[0].path;
}

std::vector<fs::path> kept_in(const std::string& folder) {
  std::vector<fs::path> all;
  for (const auto& each : fs::directory_iterator(folder + "/kernels")) all.push_back(each.path());
  return all;
}

struct NoFaults {
  NoFaults() { cuda_double::forget_faults(); }
  ~NoFaults() { cuda_double::forget_faults(); }
  NoFaults(const NoFaults&) = delete;
  NoFaults& operator=(const NoFaults&) = delete;
};

TEST_CASE("eight threads that need one chain have it compiled once") {
  const Ref<device::Device> device = opened(compiling());
  const int before = cuda_double::compiled_so_far();
  Atomic<int> compiled{0};
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.push_back(*Thread::start("compiles", [&, i] {
        const auto program = compile_chain(*device, row_chain({i + 2, 8}));
        if (program.ok() && is_compiled(**program)) compiled.add_relaxed(1);
      }));
    }
  }
  CHECK(compiled.load_acquire() == 8);
  CHECK(cuda_double::compiled_so_far() == before + 1);
}

TEST_CASE("what one device compiled the next one takes from its file, also without tuning") {
  const TestFolder folder;
  Warned warned;
  CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 1);
  CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 0);
  CHECK(compiles_of_a_device(keeping_in("", warned)) == 1);
  CHECK(kept_in(folder.path()).size() == 1);
  CHECK(warned.said().empty());
}

TEST_CASE("a file that was cut off, changed, or holds no kernel is said once, compiled anew and replaced") {
  const TestFolder folder;
  Warned first;
  REQUIRE(compiles_of_a_device(keeping_in(folder.path(), first)) == 1);
  const fs::path file = kept_in(folder.path())[0];
  const std::string whole = **read_kept(file, 1 << 30);
  std::string changed = whole;
  changed[whole.size() / 2] = static_cast<char>(changed[whole.size() / 2] ^ 1);
  for (const std::string& bytes :
       {std::string(), whole.substr(0, whole.size() - 9), changed, whole + "more"}) {
    CAPTURE(bytes.size());
    std::ofstream(file, std::ios::binary) << bytes;
    Warned warned;
    CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 1);
    REQUIRE(warned.said().size() == 1);
    CHECK(warned.said()[0].find(file) != std::string::npos);
    CHECK(**read_kept(file, 1 << 30) == whole);
    CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 0);
  }
  // With a right checksum, and code that the GPU does not take.
  const size_t code = whole.find("\ncode\n") + 6;
  const std::string body = whole.substr(0, code) + "no code";
  REQUIRE(replace_kept(file, text(body, "end ", checksum(body), '\n')).ok());
  Warned warned;
  CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 1);
  CHECK(**read_kept(file, 1 << 30) == whole);
}

TEST_CASE("another version of NVRTC and another architecture have files of their own") {
  const TestFolder folder;
  Warned warned;
  NvrtcApi newer = cuda_double::nvrtc();
  newer.version = [](int* major, int* minor) {
    *major = 13;
    *minor = 1;
    return kNvrtcSuccess;
  };
  CHECK(compiles_of_a_device(keeping_in(folder.path(), warned)) == 1);
  CHECK(compiles_of_a_device(keeping_in(folder.path(), warned, newer)) == 1);
  CHECK(kept_in(folder.path()).size() == 2);
  const std::string source = "a source";
  const KernelFiles here(folder.path(), Nvrtc::make(newer, 90)->identity(), warned.hear()),
      there(folder.path(), Nvrtc::make(newer, 80)->identity(), warned.hear());
  here.keep(source, "its code");
  CHECK(here.find(source) == "its code");
  CHECK_FALSE(there.find(source).has_value());
  // Where a name came twice, what is in the file decides.
  fs::copy_file(here.path_of(source), there.path_of(source));
  CHECK_FALSE(there.find(source).has_value());
  CHECK(warned.said().empty());
}

TEST_CASE("a folder keeps so many kernels, and the oldest give way") {
  const TestFolder folder;
  Warned warned;
  const KernelFiles files(folder.path(), "here", warned.hear());
  files.keep("the first", "code");
  fs::last_write_time(files.path_of("the first"), fs::file_time_type::min() + std::chrono::hours(1));
  for (size_t i = 1; i < KernelFiles::kMost; ++i)
    std::ofstream(text(folder.path(), "/kernels/", i, ".kernel")) << "another's";
  CHECK(files.find("the first") == "code");
  files.keep("the last", "code");
  CHECK(kept_in(folder.path()).size() == KernelFiles::kMost);
  CHECK_FALSE(files.find("the first").has_value());
  CHECK(files.find("the last") == "code");
  CHECK(files.describe() == text("kept in ", folder.path(), "/kernels: ", KernelFiles::kMost));
}

TEST_CASE("a folder that cannot be written is said once, and chains are compiled for the process") {
  const TestFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  Warned warned;
  CHECK(compiles_of_a_device(keeping_in(folder.path() + "/file", warned)) == 1);
  REQUIRE(warned.said().size() == 1);
  CHECK(warned.said()[0].find("kept for this process only") != std::string::npos);
}

TEST_CASE("what NVRTC refuses is interpreted, said by one warning and by the plan, and not tried again") {
  const NoFaults clean;
  Warned warned;
  const Ref<device::Device> device = opened(keeping_in("", warned));
  const ChainModel chain = row_chain({6, 8});
  cuda_double::refuse(Call::kCompile, kNvrtcCompilation, 0, 2);
  for (int i = 0; i < 2; ++i) {
    const auto program = compile_chain(*device, chain);
    REQUIRE(program.ok());
    CHECK(first_kernel(**program) == "chain_f32");
  }
  CHECK(planned_path(*device, chain) == "chain_f32 (NVRTC failed), a chain of 2 operators");
  CHECK(cuda_double::calls_of(Call::kCompile) == 1);
  CHECK_FALSE(
      is_compiled(**compile_chain(*device, row_chain({6, 8}, ir::DType::kBF16))));  // the second refusal
  REQUIRE(warned.said().size() == 1);
  CHECK(warned.said()[0] ==
        "chains of element-wise operators are interpreted, which takes longer: NVRTC 13.0: "
        "nvrtcCompileProgram returned status 6: chain.cu(1): error: the double says no");
  CHECK(device->lost().ok());
}

TEST_CASE("without memory for a compilation or a kernel one program is interpreted, and the next is not") {
  for (const auto& [call, code] :
       {std::pair{Call::kCompile, kNvrtcOutOfMemory}, std::pair{Call::kLoadModule, kOutOfMemory}}) {
    const NoFaults clean;
    Warned warned;
    const Ref<device::Device> device = opened(keeping_in("", warned));
    const ChainModel chain = row_chain({6, 8});
    cuda_double::refuse(call, code, 0, 1);
    const auto first = compile_chain(*device, chain);
    REQUIRE(first.ok());
    CHECK(first_kernel(**first) == "chain_f32");
    CHECK(warned.said().size() == 1);
    CHECK(planned_path(*device, chain) == "compiled_chain_f32, a chain of 2 operators");
    CHECK(warned.said().size() == 1);
  }
}

TEST_CASE("a device that is lost while a kernel is loaded is lost, and nothing is interpreted") {
  const NoFaults clean;
  Warned warned;
  const Ref<device::Device> device = opened(keeping_in("", warned));
  cuda_double::refuse(Call::kLoadModule, kIllegalAddress, 0, 1);
  CHECK(compile_chain(*device, row_chain({6, 8})).status().code() == heddle::Code::device_lost);
  CHECK(device->lost().code() == heddle::Code::device_lost);
  CHECK(warned.said().empty());
}

TEST_CASE("doctor and the plan say whether NVRTC is there, is missing or is off") {
  const ChainModel chain = row_chain({6, 8});
  Warned warned;
  const Ref<device::Device> there = opened(keeping_in("", warned));
  CHECK(fact(*there, "NVRTC") == "13.0");
  CHECK(fact(*there, "NVRTC's kernels") == "not kept: there is no folder for them");
  CHECK(warned.said().empty());

  CudaOptions options = keeping_in("", warned);
  options.nvrtc = nullptr;
  const Ref<device::Device> missing = opened(options);
  CHECK(fact(*missing, "NVRTC") == "none: the driver is not NVIDIA's");
  CHECK(warned.said().empty());
  for (int i = 0; i < 2; ++i)
    CHECK(planned_path(*missing, chain) == "chain_f32 (no NVRTC), a chain of 2 operators");
  CHECK(warned.said().size() == 1);

  const Ref<device::Device> off = opened(interpreting());
  CHECK(fact(*off, "NVRTC") == "off");
  CHECK(planned_path(*off, chain) == "chain_f32 (NVRTC is off), a chain of 2 operators");
}

TEST_CASE("a library without NVRTC's functions is named with the function it lacks") {
  const char* const names[] = {"libm.so.6"};
  const auto other = find_library(names, {});
  REQUIRE(other.ok());
  const auto loaded = load_nvrtc(*other);
  REQUIRE(!loaded.ok());
  CHECK(loaded.status().message().find("libm.so.6 has no nvrtcVersion") != std::string::npos);
}

}  // namespace
}  // namespace heddle::cuda
