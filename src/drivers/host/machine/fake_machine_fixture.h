// fake_machine_fixture.h: a machine that this is not, as the system's files would tell of it.
//
//   What       FakeRoot: a folder of files, gone with it. FakeMachine: processors and memory nodes of a
//              machine, and the processor that a thread of the test runs on (run_on).
//   Threads    run_on: a thread's own.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "drivers/host/machine/folder_fixture.h"
#include "drivers/host/machine/nodes.h"

namespace heddle::host {

using FakeFiles = std::vector<std::pair<std::string, std::string>>;

class FakeRoot {
 public:
  explicit FakeRoot(const FakeFiles& files) {
    for (const auto& [name, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(path() + name).parent_path());
      std::ofstream(path() + name) << content;
    }
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const TestFolder folder_;
};

// A process that may use processors 0 to `count` - 1 of as many.
inline FakeFiles fake_processors(int count) {
  const std::string list = text("0-", count - 1, "\n");
  return {{"/proc/self/status", text("Name:\tx\nCpus_allowed_list:\t", list)},
          {"/sys/devices/system/cpu/online", list}};
}

struct FakeMemory {
  int nodes = 2;
  int cores_each = 2;
  uint64_t cache_kib = 1024;     // of each node, shared by its processors
  uint64_t free_kib = 16 << 20;  // of each node
  int distance = 21;             // between two; to itself: 10
};

// Node n has processors n * cores_each and on.
inline FakeFiles fake_nodes(const FakeMemory& memory) {
  const int cores = memory.nodes * memory.cores_each;
  FakeFiles files = fake_processors(cores);
  const std::string folder = "/sys/devices/system/node/node";
  files.emplace_back("/sys/devices/system/node/online", text("0-", memory.nodes - 1, "\n"));
  for (int node = 0; node < memory.nodes; ++node) {
    const std::string at = folder + std::to_string(node);
    std::string distances;
    for (int to = 0; to < memory.nodes; ++to) distances += text(to == node ? 10 : memory.distance, " ");
    files.emplace_back(at + "/distance", distances + "\n");
    files.emplace_back(at + "/meminfo", text("Node ", node, " MemTotal:  99999999 kB\nNode ", node,
                                             " MemFree:  ", memory.free_kib, " kB\n"));
    files.emplace_back(at + "/cpulist",
                       text(node * memory.cores_each, "-", (node + 1) * memory.cores_each - 1, "\n"));
  }
  for (int core = 0; core < cores; ++core) {
    const int first = core / memory.cores_each * memory.cores_each;
    const std::string at = text("/sys/devices/system/cpu/cpu", core, "/cache/index");
    for (const auto& [index, level, size] :
         {std::tuple(0, 1, uint64_t{32}), std::tuple(1, 3, memory.cache_kib)}) {
      files.emplace_back(text(at, index, "/level"), text(level, "\n"));
      files.emplace_back(text(at, index, "/size"), text(size, "K\n"));
      files.emplace_back(
          text(at, index, "/shared_cpu_list"),
          level == 1 ? text(core, "\n") : text(first, "-", first + memory.cores_each - 1, "\n"));
    }
  }
  return files;
}

// Where a thread of the test runs on the machine of its making.
inline constinit thread_local int fake_core = 0;

inline Nodes nodes_of(const FakeRoot& root) {
  return Nodes::read(read_budget(root.path()), root.path(), [] { return fake_core; });
}

}  // namespace heddle::host
