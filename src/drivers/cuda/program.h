// program.h: a specialised graph as a list of steps, and what a run puts into their parameters.
//
//   What       lowering/ makes the list once. A run copies each step's parameters, fills in the addresses
//              that only the run knows (inputs, outputs, arena, flags), and enqueues it: a kernel of ours, or
//              a call of cuBLASLt or cuDNN.
//   Checks     What only the data shows (an index out of range) a kernel writes into flags, one for each row
//              or one for all, in pinned memory of the submission; nothing is written where all is right.
//   Threads    Immutable, but for a count of graphs (graphs.h) that failed.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "device/device.h"
#include "drivers/cuda/libraries/library_call.h"
#include "plan/placement.h"

namespace heddle::cuda {

// Where a step finds one of its addresses: at byte `at` of its parameters.
struct Patch {
  enum class Kind : uint8_t { kArena, kInput, kOutput, kFlags };
  Kind kind;
  uint16_t input = 0;  // kInput, kOutput: which
  uint32_t at;
  uint64_t offset;  // bytes
};

struct Arguments {
  uint32_t params, bytes;  // where its parameters begin in Lowered::params
  uint32_t patches, patch_count;
};

struct Launch {
  const Kernel* kernel;
  unsigned blocks, threads, shared_bytes;
  Arguments arguments;
  const char* why = "";  // for people: it is this kernel, and no better one
};

// Its parameters are the call's operands. The launches behind it compute the same, and run instead of it
// where an address is not aligned as the library needs it.
struct LibraryStep {
  Ref<const LibraryCall> call;
  Arguments arguments;
  uint32_t launches = 0;  // that it stands for
};

using Step = std::variant<Launch, LibraryStep>;

// Whom steps are given to, one after the other: a stream, or a graph.
class StepTaker {
 public:
  virtual ~StepTaker() = default;
  virtual Status launch(const Launch& launch, std::byte* params) = 0;
  // False: the launches that the call stands for follow.
  virtual Result<bool> call(const LibraryCall& call, const std::byte* operands) = 0;
};

class IntoStream final : public StepTaker {
 public:
  IntoStream(const OpenDevice& device, StreamHandle stream) : device_(device), stream_(stream) {}

  Status launch(const Launch& launch, std::byte* params) override;
  Result<bool> call(const LibraryCall& call, const std::byte* operands) override;

 private:
  const OpenDevice& device_;
  const StreamHandle stream_;
};

struct Check {
  std::string mistake;  // names the node, says what is wrong and what would be right
  uint64_t flags = 1;   // words; with per_row, flag i belongs to row i * rows / flags of a run over rows
  bool per_row = false;
};

struct Lowered {
  std::vector<Step> steps;
  std::vector<std::byte> params;
  std::vector<Patch> patches;
  std::vector<Check> checks;
  uint64_t flag_words = 0;   // of all checks
  uint64_t arena_bytes = 0;  // between nodes, and what nodes need while they run
};

// Without the launches that a library's calls stand for.
struct StepCounts {
  size_t launches = 0, calls = 0;
  // A graph of two kernels costs the host about what two launches do, and a library's call at least as much.
  size_t saved() const { return launches + 2 * calls; }        // launches that a graph saves, about
  size_t graph_nodes() const { return launches + 3 * calls; }  // a product, what clears for it, what adds up
};
StepCounts counts_of(const std::vector<Step>& steps);

class CudaProgram final : public device::Program {
 public:
  // `keep`: the constants that steps name, of which `own_bytes` are this program's alone. `failures`: of its
  // graphs, for the module's plans.
  CudaProgram(const ir::Graph& specialised, Lowered lowered, Ref<const OpenDevice> device,
              std::vector<Ref<const void>> keep, uint64_t own_bytes, Ref<Atomic<uint32_t>> failures);

  static constexpr size_t kMostParams = 4096;  // bytes that CUDA takes
  static constexpr size_t kLeastGraphLaunches = 3;

  const Lowered& lowered() const { return lowered_; }
  // Ends with the program. While somebody has it, no other program's is at its address.
  const Ref<const void>& life() const { return life_; }
  // Whether runs with so many copies beside them may become graphs: there are not too few steps, and it has
  // an arena.
  bool fits_graph(size_t copies = 0) const {
    return arena_bytes() > 0 && counts_.saved() + copies >= kLeastGraphLaunches;
  }
  size_t graph_nodes() const { return counts_.graph_nodes(); }  // of a graph of it, about
  bool calls_library() const { return counts_.calls > 0; }
  uint32_t graph_failures() const { return failures_->load_relaxed(); }
  void count_graph_failure() const { failures_->add_relaxed(1); }

  // Each step, with the addresses of the run in its parameters. `flags`: where its flag words are.
  Status give_steps(const device::Run& run, Address flags, StepTaker& to) const;

 private:
  // Puts a step's parameters into kMostParams bytes at `params`.
  void fill(const Arguments& arguments, const device::Run& run, Address flags, std::byte* params) const;

  const Lowered lowered_;
  const Ref<const OpenDevice> device_;
  const std::vector<Ref<const void>> keep_;
  const Ref<const void> life_;
  const StepCounts counts_;
  const Ref<Atomic<uint32_t>> failures_;
};

}  // namespace heddle::cuda
