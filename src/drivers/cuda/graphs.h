// graphs.h: runs that CUDA replays: one call in the place of a program's launches.
//
//   What       A run whose program and addresses (arena, inputs, outputs, flags) come a second time is built
//              into an executable graph (graph_builder.h), and launched as one from then on. The small copies
//              before and after it, as calls stage them, are part of the graph; their nodes are told where
//              they copy from and to whenever that changes, so that one graph serves each result's memory.
//   End        Where such a copy to the host is a submission's last command, the graph's last kernel writes
//              the timeline's word itself (kernels/tell.h). What that reads has to live until it has: the
//              submission keeps the graph. The host may launch the graph anew once it has seen the word,
//              when a few last instructions of it are left.
//   Which      CudaProgram::fits_graph(): some steps at least, and an arena. The others are launched step by
//              step, and so is a program whose graphs failed kMostFailures times, and one that calls a
//              library where others of the process use CUDA: building its graphs might make their calls fail.
//   Alone      CUDA runs a graph once at a time, in whichever streams, and does not order threads that launch
//              or change it at once. The arena's address is in the key, and an arena is one run's until that
//              is over: no two threads or streams ever want the same graph. So all queues of a device share
//              the graphs: a slot's addresses serve whichever lane uses the slot, and four lanes do not keep
//              four graphs of it.
//   Limits     `bytes_max` over the device's graphs, by CLOCK (OnceMap). Once that is full, one in
//              kRunsPerReplacement runs that want a graph gets it in another's place: where more addresses
//              take turns than there is room for, building must not cost more than launching. The graphs of
//              programs that are gone go first, all at once.
//   Threads    Any. What is built is found without a lock; what was seen is remembered in words that are
//              hints.
//   Errors     A graph that cannot be built or launched is no failure of the run, which is launched
//              step by step; if the device is lost, that says so.
#pragma once

#include <array>
#include <span>

#include "base/once_map.h"
#include "device/command_list.h"
#include "drivers/cuda/program.h"
#include "drivers/cuda/tickets.h"

namespace heddle::cuda {

// A run, and copies that stand beside it in a submission: all that a graph does.
struct GraphPlace {
  const device::Run& run;
  Address flags = 0;  // 0: it has none
  std::span<const device::Command> before = {}, after = {};
  // The submission's, where `after` ends it and a graph can tell of that; else without a word.
  Ticket end = {};

  bool tells() const { return end.word != 0; }

  const CudaProgram& program() const { return static_cast<const CudaProgram&>(*run.program); }
  size_t copies() const { return before.size() + after.size(); }
  uint64_t bytes() const;  // of its graph
  // What stands in the parameters of its kernels, but for the addresses of copies.
  template <class F>
  void each_word(F&& f) const;
  // f(copy), in order, where the run stands between `before` and `after`.
  template <class F>
  Status each_copy(std::span<const device::Command> copies, F&& f) const;
  Status give(const OpenDevice& device, StepTaker& to) const;
};

struct GraphKey {
  explicit GraphKey(const GraphPlace& place);
  bool operator==(const GraphKey& other) const { return program == other.program && words == other.words; }
  bool operator==(const GraphPlace& place) const;

  const void* program;             // the address of its life(), its own for as long as that is held
  std::weak_ptr<const void> life;  // ... as here
  std::vector<uint64_t> words;
};

struct GraphHash {
  size_t operator()(const GraphKey& key) const;
  size_t operator()(const GraphPlace& place) const;
};

class Graphs {
 public:
  static constexpr uint32_t kMostFailures = 3;
  static constexpr uint32_t kRunsPerReplacement = 16;
  // Runs that came once are remembered in sets. Up to kWays runs of one set can take turns and each become a
  // graph; a program with four lanes has as many.
  static constexpr size_t kSets = 256, kWays = 4;
  // What CUDA keeps for a node of a kernel, in the host's memory and the GPU's: it does not say. NVIDIA's own
  // cache of graphs counts about 10 KB (CCCL, pull request 3768).
  static constexpr uint64_t kNodeBytes = 10 * 1024;
  static uint64_t bytes_of(size_t nodes) { return (nodes + 1) * kNodeBytes; }

  Graphs(Ref<const OpenDevice> device, uint64_t bytes_max, bool (*others_use_cuda)())
      : device_(std::move(device)),
        tickets_(std::make_shared<Tickets>(device_)),
        bytes_max_(bytes_max),
        others_use_cuda_(others_use_cuda),
        built_({.bytes = bytes_max}) {}

  struct Launched {
    bool tells = false;              // of its end, itself
    Ref<const void> keep = nullptr;  // has to live until the submission is over; null: nothing
  };
  // Enqueues all of it; the device's context is current.
  Result<Launched> launch(const GraphPlace& place, StreamHandle stream);

  uint64_t bytes() const { return bytes_->load_relaxed(); }
  // For people: whether runs of such a program become graphs, and why not. `failures`: of its graphs.
  std::string describe(const StepCounts& counts, uint64_t arena_bytes, uint32_t failures) const;

 private:
  struct CopyNode {
    GraphNode node = nullptr;  // null: it copies no elements
    Address from = 0, to = 0;
    Address ticket = 0;  // 0: it tells of nothing
  };
  struct Drawn {
    std::vector<CopyNode> copies;
    Tickets::Lease ticket;  // null: the graph does not tell of its end
  };
  struct Graph {
    Graph(Ref<const OpenDevice> of, Drawn made, GraphHandle nodes, GraphExec handle, uint64_t size,
          Ref<Atomic<uint64_t>> all)
        : device(std::move(of)),
          drawn(std::move(made)),
          graph(nodes),
          executable(handle),
          bytes(size),
          sum(std::move(all)) {
      sum->add_relaxed(bytes);
    }
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    bool tells() const { return drawn.ticket != nullptr; }

    const Ref<const OpenDevice> device;  // a timeline may let go of it last
    mutable Drawn drawn;                 // changed by whoever has the arena
    const GraphHandle graph;             // by which the nodes of copies are named; null: there are none
    const GraphExec executable;
    const uint64_t bytes;
    const Ref<Atomic<uint64_t>> sum;
  };

  using Built = OnceMap<GraphKey, Graph, GraphHash>;

  bool is_launched(const Graph& graph, const GraphPlace& place, StreamHandle stream);  // false: not this time
  Ref<const Graph> find(const GraphPlace& place);                                      // null: not this time
  // Its copies become those of the place, and its end the submission's.
  Status bring_up_to_date(const Graph& graph, const GraphPlace& place) const;
  bool is_wanted(const GraphPlace& place);
  bool came_before(uint64_t hash);
  bool would_disturb(const CudaProgram& program);
  Result<Ref<const Graph>> build(const GraphPlace& place);

  const Ref<const OpenDevice> device_;
  const Ref<Tickets> tickets_;
  const uint64_t bytes_max_;
  bool (*const others_use_cuda_)();
  Atomic<bool> others_{false};  // were seen to use it; looked for when a graph is built
  const Ref<Atomic<uint64_t>> bytes_ = std::make_shared<Atomic<uint64_t>>(0);  // of the graphs that live
  Atomic<uint32_t> replacements_{0};                                           // asked for; some are made
  // Hashes of runs that came once, in the set that each gives: the latest first, the oldest leaves.
  std::array<std::array<Atomic<uint64_t>, kWays>, kSets> seen_;
  Built built_;
};

}  // namespace heddle::cuda
