#include "drivers/host/machine/cpu_budget.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "drivers/host/machine/fake_machine_fixture.h"
#include "tests/child_fixture.h"

namespace heddle::host {
namespace {

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

TEST_CASE("lists of processors are read as the system writes them, and what makes no sense is left out") {
  using List = std::vector<int>;
  CHECK(read_cpu_list("0-3,8") == List{0, 1, 2, 3, 8});
  CHECK(read_cpu_list("\t5\n") == List{5});
  CHECK(read_cpu_list("7,1-2,2") == List{1, 2, 7});
  CHECK(read_cpu_list("").empty());
  CHECK(read_cpu_list("-3,x,4-,6-5,9") == List{9});
  CHECK(read_cpu_list("0-299").size() == 300);
  CHECK(read_cpu_list("0-4000000000").empty());
}

struct QuotaCase {
  const char* what;
  int processors;  // of the affinity mask; the machine's, too
  double quota;    // 0: none
  int cores;
  const char* why;
};
constexpr QuotaCase kQuotas[] = {
    {"one", 128, 1, 1, "1: affinity 128 of 128, cgroup quota 1 -> 1"},
    {"two", 128, 2, 2, "2: affinity 128 of 128, cgroup quota 2 -> 2"},
    {"three", 128, 3, 3, "3: affinity 128 of 128, cgroup quota 3 -> 3"},
    {"a broken number", 128, 7.5, 7, "7: affinity 128 of 128, cgroup quota 7.5 -> 7"},
    {"more than a word has bits", 128, 100, 100, "100: affinity 128 of 128, cgroup quota 100 -> 100"},
    {"no quota", 128, 0, 128, "128: affinity 128 of 128"},
    {"no quota, 300 processors", 300, 0, 300, "300: affinity 300 of 300"},
    {"2000, as many as no mask of C's has", 2000, 0, 2000, "2000: affinity 2000 of 2000"},
    {"a quota of more than there are", 4, 7.5, 4, "4: affinity 4 of 4, cgroup quota 7.5 -> 7"},
};

FakeFiles quota_files(const QuotaCase& c, int version) {
  FakeFiles files = fake_processors(c.processors);
  const std::string quota = std::to_string(static_cast<int>(c.quota * 100000));
  files.emplace_back("/proc/self/mountinfo", version == 2 ? kV2Mount : kV1Mounts);
  if (version == 2) {
    files.emplace_back("/proc/self/cgroup", "0::/x\n");
    files.emplace_back("/sys/fs/cgroup/x/cpu.max", (c.quota > 0 ? quota : "max") + " 100000\n");
  } else {
    files.emplace_back("/proc/self/cgroup", "3:cpu,cpuacct:/x\n");
    files.emplace_back("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", (c.quota > 0 ? quota : "-1") + "\n");
    files.emplace_back("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  }
  return files;
}

#if defined(__linux__)

size_t threads_of_this_process() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

std::string fact_of(const device::Device& device, const std::string& name) {
  for (const device::Fact& fact : device.traits().facts) {
    if (fact.name == name) return fact.value;
  }
  return "";
}

TEST_CASE("a quota of k processors gives k lanes and a team of k, by groups of either version") {
  for (const QuotaCase& c : kQuotas) {
    for (const int version : {1, 2}) {
      CAPTURE(c.what);
      CAPTURE(version);
      const FakeRoot root(quota_files(c, version));
      const Budget budget = read_budget(root.path());
      CHECK(budget.cores == c.cores);
      CHECK(budget.processors == c.processors);
      CHECK(budget.quota == c.quota);
      CHECK(budget.why() == c.why);
      if (budget.cores > 300) continue;  // as many threads are no test of a small machine
      const size_t before = threads_of_this_process();
      const auto device = make_host_device({.root = root.path()});
      REQUIRE(device.ok());
      CHECK((*device)->traits().threads == c.cores);
      CHECK((*device)->traits().lanes == c.cores);
      CHECK((*device)->traits().queue_depth == (c.cores < c.processors ? c.cores : 2 * c.cores));
      CHECK(threads_of_this_process() == before + static_cast<size_t>(c.cores) - 1);
      CHECK(fact_of(**device, "processors") == c.why);
    }
  }
}

TEST_CASE("child: a process on one processor" * doctest::skip()) {
  const auto device = make_host_device();
  REQUIRE(device.ok());
  const device::Traits& traits = (*device)->traits();
  CHECK(traits.threads == 1);
  CHECK(traits.lanes == 1);
  CHECK(threads_of_this_process() == 1);
  CHECK(fact_of(**device, "processors").starts_with("1: affinity 1 of "));
}

void confine_to_one_processor() {
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
}

TEST_CASE("child: confined before the first use" * doctest::skip()) {
  const int processors = read_budget().processors;
  confine_to_one_processor();
  const auto device = make_host_device();
  REQUIRE(device.ok());
  CHECK((*device)->traits().threads == 1);
  CHECK((*device)->traits().lanes == 1);
  CHECK(processors >= 1);
}

TEST_CASE("a process that was started on one processor is a machine of one") {
  test::Child child;
  // As taskset does: the child has the mask of the thread that starts it.
  Thread("confined", [&] {
    confine_to_one_processor();
    child = test::run_child("child: a process on one processor");
  }).join();
  CHECK_MESSAGE(child.exit_code == 0, child.said);
}

TEST_CASE("an affinity that is set before the first use of the device is respected") {
  const test::Child child = test::run_child("child: confined before the first use");
  CHECK_MESSAGE(child.exit_code == 0, child.said);
}

#endif

}  // namespace
}  // namespace heddle::host
