// program.h: a specialised graph as a list of launches, and what a run puts into their parameters.
//
//   What       lowering/ makes the list once. A run copies each launch's parameters, fills in the addresses
//              that only the run knows (inputs, outputs, arena, flags), and launches.
//   Checks     What only the data shows (an index out of range) a kernel writes into flags, one for each row
//              or one for all, in pinned memory of the submission; nothing is written where all is right.
//   Threads    Immutable.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "drivers/cuda/driver/open_device.h"
#include "plan/placement.h"

namespace heddle::cuda {

// Where a launch finds one of its addresses: at byte `at` of its parameters.
struct Patch {
  enum class Kind : uint8_t { kArena, kInput, kOutput, kFlags };
  Kind kind;
  uint16_t input = 0;  // kInput, kOutput: which
  uint32_t at;
  uint64_t offset;  // bytes
};

struct Launch {
  const Kernel* kernel;
  unsigned blocks, threads, shared_bytes;
  uint32_t params;  // where its parameters begin in Lowered::params
  uint32_t patches, patch_count;
};

struct Check {
  std::string mistake;  // names the node, says what is wrong and what would be right
  uint64_t flags = 1;   // words; with per_row, flag i belongs to row i * rows / flags of a run over rows
  bool per_row = false;
};

struct Lowered {
  std::vector<Launch> launches;
  std::vector<std::byte> params;
  std::vector<Patch> patches;
  std::vector<Check> checks;
  uint64_t flag_words = 0;   // of all checks
  uint64_t arena_bytes = 0;  // between nodes, and what nodes need while they run
};

class CudaProgram final : public device::Program {
 public:
  // `keep`: the constants that launches name, of which `own_bytes` are this program's alone.
  CudaProgram(const ir::Graph& specialised, Lowered lowered, Ref<const OpenDevice> device,
              std::vector<Ref<const void>> keep, uint64_t own_bytes);

  const Lowered& lowered() const { return lowered_; }
  // Enqueues the run; the device's context is current. `flags`: where its flag words are.
  Status launch(const device::Run& run, Address flags, StreamHandle stream) const;

 private:
  const Lowered lowered_;
  const Ref<const OpenDevice> device_;
  const std::vector<Ref<const void>> keep_;
};

}  // namespace heddle::cuda
