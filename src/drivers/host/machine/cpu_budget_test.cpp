#include "drivers/host/machine/cpu_budget.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace heddle::host {
namespace {

class FakeRoot {
 public:
  explicit FakeRoot(const std::vector<std::pair<std::string, std::string>>& files) {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-budget-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    for (const auto& [name, text] : files) {
      std::filesystem::create_directories(std::filesystem::path(path_ + name).parent_path());
      std::ofstream(path_ + name) << text;
    }
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const std::string kV2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const std::string kV1Mounts =
    "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

struct BudgetCase {
  const char* what;
  std::vector<std::pair<std::string, std::string>> files;
  int cores;
  uint64_t memory;
};

std::vector<BudgetCase> version_2_cases(const Budget& machine) {
  return {
      {"no control groups", {}, machine.cores, machine.memory_bytes},
      {"version 2, no limit",
       {{"/proc/self/mountinfo", kV2Mount},
        {"/proc/self/cgroup", "0::/a\n"},
        {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"},
        {"/sys/fs/cgroup/a/memory.max", "max\n"}},
       machine.cores,
       machine.memory_bytes},
      {"version 2, own limit",
       {{"/proc/self/mountinfo", kV2Mount},
        {"/proc/self/cgroup", "0::/a\n"},
        {"/sys/fs/cgroup/a/cpu.max", "100000 100000\n"},
        {"/sys/fs/cgroup/a/memory.max", "1000000\n"}},
       1,
       1000000},
      {"version 2, limit of a parent",
       {{"/proc/self/mountinfo", kV2Mount},
        {"/proc/self/cgroup", "0::/a/b/c\n"},
        {"/sys/fs/cgroup/a/cpu.max", "100000 100000\n"},
        {"/sys/fs/cgroup/a/b/memory.max", "5000\n"},
        {"/sys/fs/cgroup/a/memory.max", "7000\n"}},
       1,
       5000},
      {"a part of a core counts as one",
       {{"/proc/self/mountinfo", kV2Mount},
        {"/proc/self/cgroup", "0::/\n"},
        {"/sys/fs/cgroup/cpu.max", "20000 100000\n"}},
       1,
       machine.memory_bytes},
      {"version 2 limits round down",
       {{"/proc/self/mountinfo", kV2Mount},
        {"/proc/self/cgroup", "0::/\n"},
        {"/sys/fs/cgroup/cpu.max", "190000 100000\n"}},
       1,
       machine.memory_bytes},
      {"a container sees its group as the root",
       {{"/proc/self/mountinfo", "30 23 0:26 /docker/id /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"/proc/self/cgroup", "0::/docker/id\n"},
        {"/sys/fs/cgroup/cpu.max", "100000 100000\n"}},
       1,
       machine.memory_bytes},
      {"files that make no sense are ignored",
       {{"/proc/self/mountinfo", "x\n- -\n" + kV2Mount},
        {"/proc/self/cgroup", "::\n0::/q\n"},
        {"/sys/fs/cgroup/q/cpu.max", "fast 0\n"},
        {"/sys/fs/cgroup/q/memory.max", "much\n"}},
       machine.cores,
       machine.memory_bytes},
  };
}

std::vector<BudgetCase> version_1_cases(const Budget& machine) {
  return {
      {"version 1",
       {{"/proc/self/mountinfo", kV1Mounts},
        {"/proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/x\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "4096\n"}},
       1,
       4096},
      {"version 1, no limit is -1",
       {{"/proc/self/mountinfo", kV1Mounts},
        {"/proc/self/cgroup", "3:cpu,cpuacct:/x\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"}},
       machine.cores,
       machine.memory_bytes},
  };
}

TEST_CASE("the budget is the least of the affinity and every quota above the process") {
  const Budget machine = read_budget("/nonexistent");
  const auto at_most = [&](int cores) { return std::min(cores, machine.cores); };
  std::vector<BudgetCase> cases = version_2_cases(machine);
  for (BudgetCase& c : version_1_cases(machine)) cases.push_back(std::move(c));
  for (const BudgetCase& c : cases) {
    CAPTURE(c.what);
    const FakeRoot root(c.files);
    const Budget budget = read_budget(root.path());
    CHECK(budget.cores == at_most(c.cores));
    CHECK(budget.processors == machine.processors);
    CHECK(budget.memory_bytes == c.memory);
  }
}

TEST_CASE("the machine's own budget is at least a core and some memory") {
  const Budget budget = read_budget();
  CHECK(budget.cores >= 1);
  CHECK(budget.processors >= budget.cores);
  CHECK(budget.memory_bytes > (1u << 20));
}

}  // namespace
}  // namespace heddle::host
