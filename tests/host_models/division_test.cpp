// How whole models are divided among 1 to 64 threads: compiled, not run.
#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/panels_fixture.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "onnx/reader.h"
#include "plan/passes/optimize.h"
#include "plan/specialize.h"

namespace heddle::host {
namespace {

constexpr int kThreads = 64;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Made by tools/models/real_files.py and minilm.py, which `make test` runs first. A dimension without a size
// here is the batch.
struct File {
  std::string path;  // below build/models
  std::map<std::string, int64_t> sizes;
};
const std::vector<File> kFiles = {
    {"torch/conv1d.onnx", {{"length", 100}}},
    {"torch/conv1d.onnx", {{"length", 104}}},
    {"torch/encoder.onnx", {{"length", 37}}},
    {"torch/mlp.onnx", {}},
    {"torch/resnet18.onnx", {{"height", 224}, {"width", 224}}},
    {"torch/unet.onnx", {{"8*height_8th", 64}, {"8*width_8th", 96}}},
    {"minilm.onnx", {{"seq", 37}}},
};

std::vector<ir::Extents> extents_of(const ir::Graph& graph, const File& file, int64_t batch) {
  std::vector<ir::Extents> inputs;
  for (const ir::ValueId id : graph.inputs) {
    ir::Extents extents;
    for (const ir::Dim& dim : graph.type(id).shape) {
      const auto named = file.sizes.find(to_string(dim));
      extents.push_back(dim.is_static() ? dim.value() : named == file.sizes.end() ? batch : named->second);
    }
    inputs.push_back(extents);
  }
  return inputs;
}

// How many of the steps are divided among the threads.
int divided_steps(const HostProgram& program) {
  int divided = 0;
  for (const HostProgram::Named& named : program.steps())
    divided += named.step->path().find(" pieces") != std::string::npos;
  return divided;
}

int sweep(const File& file, int64_t batch, const Ref<const Engine>& engine) {
  const std::string path = HEDDLE_TEST_MODELS "/" + file.path;
  const ir::Graph graph = require(plan::optimize(require(onnx::read_file(path))));
  const ir::Graph shaped = require(plan::specialize(graph, extents_of(graph, file, batch)));
  WeightStore store(engine, shaped, source_of_tests());
  int divided = 0;
  for (int threads = 1; threads <= kThreads; ++threads) {
    const auto program = require(HostProgram::prepare(shaped, store, threads, kNoLimit, true));
    for (const HostProgram::Named& named : program->steps()) {
      const std::string how = named.step->path();
      CHECK_MESSAGE(how.find("slow reference") == std::string::npos, file.path, ", batch ", batch, ", ",
                    threads, " threads, ", std::string(named.op), ": ", how);
    }
    divided += divided_steps(*program);
  }
  return divided;
}

TEST_CASE("no division sends to oneDNN's reference what a kernel computes as a whole: models") {
  const OmpScope team_of_one;
  for (const bool bf16 : {false, true}) {
    const auto engine = make_engine(bf16);
    if (!engine.ok()) continue;  // this processor has no bf16
    for (const File& file : kFiles) {
      REQUIRE_MESSAGE(std::filesystem::exists(HEDDLE_TEST_MODELS "/" + file.path), file.path,
                      " is missing: run tools/models/real_files.py and tools/models/minilm.py");
      const int divided = sweep(file, 1, *engine);
      // Without panels a row's product is one piece, and a model may have nothing else.
      if (has_panels()) CHECK_MESSAGE(divided > 0, file.path);
      CHECK_MESSAGE(sweep(file, 8, *engine) > 0, file.path);
    }
  }
}

}  // namespace
}  // namespace heddle::host
