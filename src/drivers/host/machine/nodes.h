// nodes.h: which memory is near to which processor.
//
//   What       The memory nodes of the processors that this process may use, numbered from 0 here, and the
//              last cache that those processors share on each. Read once from /sys/devices/system.
//   One node   Where that folder is missing, tells of one, or the process may use one node's processors only.
//              Nodes whose memory is no farther than one's own (distance) count as one.
//   OnNode     While it lives its thread's node is OnNode::now(). A caller has one for a whole run, a helper
//              for the time in one loop: the processor is asked for once each, not by every step.
//              A thread that the system moves meanwhile reads from the other node for that long.
//   Threads    Any: immutable, but for free_bytes(), which reads a file each time.
//   Blocks     read() and free_bytes(), on files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/host/machine/cpu_budget.h"

namespace heddle::host {

class Nodes {
 public:
  static constexpr int kUnknown = -1;

  // `root` as read_budget() has it. `core` gives the processor that the calling thread runs on, or -1.
  static Nodes read(const Budget& budget, const std::string& root, int (*core)());

  int count() const { return static_cast<int>(nodes_.size()); }  // at least 1
  int of(int core) const {                                       // kUnknown: of none of these
    return core >= 0 && static_cast<size_t>(core) < of_core_.size() ? of_core_[static_cast<size_t>(core)]
                                                                    : kUnknown;
  }
  int here() const { return of(core_()); }
  uint64_t cache_bytes(int node) const { return nodes_[static_cast<size_t>(node)].cache_bytes; }  // 0: untold
  // Memory that the system could give there without taking any from another process.
  uint64_t free_bytes(int node) const;
  std::string name(int node) const;  // by the system's numbers

 private:
  struct Node {
    std::vector<int> numbers;  // the system's
    std::vector<int> cores;
    uint64_t cache_bytes = 0;
  };
  Nodes() = default;
  void add(int number, const std::vector<int>& cores, const std::vector<int>& near);
  void look_up_cores();

  std::string root_;
  int (*core_)() = nullptr;
  std::vector<Node> nodes_;
  std::vector<int> of_core_;
};

class OnNode {
 public:
  explicit OnNode(const Nodes* nodes) : nodes_(nodes) {  // null: there is one, and nobody asks which
    if (nodes_ == nullptr) [[likely]]
      return;
    before_ = now_;
    now_ = nodes_->here();
  }
  ~OnNode() {
    if (nodes_ != nullptr) [[unlikely]]
      now_ = before_;
  }
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;
  static int now() { return now_; }  // kUnknown: this thread has none

 private:
  inline static constinit thread_local int now_ = Nodes::kUnknown;
  const Nodes* const nodes_;
  int before_ = Nodes::kUnknown;
};

}  // namespace heddle::host
