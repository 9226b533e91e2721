#include "drivers/host/machine/nodes.h"

#include <doctest/doctest.h>

#include "drivers/host/machine/fake_machine_fixture.h"

namespace heddle::host {
namespace {

TEST_CASE("a machine of 2 and of 4 memory nodes is read with its processors, caches and free memory") {
  for (const int count : {2, 4}) {
    const FakeRoot root(fake_nodes({.nodes = count, .cores_each = 32, .cache_kib = 32768, .free_kib = 1000}));
    const Nodes nodes = nodes_of(root);
    REQUIRE(nodes.count() == count);
    for (int core = 0; core < count * 32; ++core) CHECK(nodes.of(core) == core / 32);
    for (int node = 0; node < count; ++node) {
      CHECK(nodes.cache_bytes(node) == 32 << 20);
      CHECK(nodes.free_bytes(node) == 1000 << 10);
      CHECK(nodes.name(node) == std::to_string(node));
    }
    CHECK(nodes.of(count * 32) == Nodes::kUnknown);
    CHECK(nodes.of(-1) == Nodes::kUnknown);
  }
}

TEST_CASE("without a folder of nodes, and on a machine of one, there is one") {
  const FakeRoot none(fake_processors(8)), one(fake_nodes({.nodes = 1}));
  CHECK(nodes_of(none).count() == 1);
  CHECK(nodes_of(one).count() == 1);
  CHECK(Nodes::read(Budget{}, "/nonexistent", [] { return 0; }).count() == 1);
}

TEST_CASE("a process that may use one node's processors has one node") {
  FakeFiles files = fake_nodes({.nodes = 4, .cores_each = 4});
  files.emplace_back("/proc/self/status", "Cpus_allowed_list:\t4-7\n");  // the last one is what is there
  CHECK(nodes_of(FakeRoot(files)).count() == 1);
  files.emplace_back("/proc/self/status", "Cpus_allowed_list:\t6-9\n");
  const FakeRoot two(files);
  const Nodes nodes = nodes_of(two);
  REQUIRE(nodes.count() == 2);
  CHECK(nodes.name(0) == "1");
  CHECK(nodes.name(1) == "2");
  CHECK(nodes.of(7) == 0);
  CHECK(nodes.of(8) == 1);
  CHECK(nodes.of(5) == Nodes::kUnknown);
}

TEST_CASE("nodes whose memory is as near as their own count as one") {
  const FakeRoot near(fake_nodes({.nodes = 4, .distance = 10}));
  CHECK(nodes_of(near).count() == 1);
  FakeFiles pairs = fake_nodes({.nodes = 4});
  for (const auto& [node, distances] : {std::pair(0, "10 10 21 21"), std::pair(1, "10 10 21 21"),
                                        std::pair(2, "21 21 10 10"), std::pair(3, "21 21 10 10")})
    pairs.emplace_back(text("/sys/devices/system/node/node", node, "/distance"), distances);
  const FakeRoot root(pairs);
  const Nodes nodes = nodes_of(root);
  REQUIRE(nodes.count() == 2);
  CHECK(nodes.name(0) == "0+1");
  CHECK(nodes.name(1) == "2+3");
  CHECK(nodes.cache_bytes(1) == 2 << 20);
  CHECK(nodes.of(1) == 0);
  CHECK(nodes.of(4) == 1);
}

TEST_CASE("memory without processors is no node, and files that make no sense tell of none") {
  FakeFiles files = fake_nodes({.nodes = 2});
  files.emplace_back("/sys/devices/system/node/online", "0-2\n");
  files.emplace_back("/sys/devices/system/node/node2/cpulist", "\n");
  files.emplace_back("/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: lots\n\nNode\n");
  files.emplace_back("/sys/devices/system/cpu/cpu0/cache/index1/size", "?\n");
  const FakeRoot root(files);
  const Nodes nodes = nodes_of(root);
  CHECK(nodes.count() == 2);
  CHECK(nodes.free_bytes(1) == 0);
  CHECK(nodes.cache_bytes(0) == 0);
}

TEST_CASE("a thread's node is known inside OnNode only, and the outer one's again after an inner one") {
  const FakeRoot root(fake_nodes({.nodes = 2, .cores_each = 1}));
  const Nodes nodes = nodes_of(root);
  {
    const OnNode nothing(nullptr);
    CHECK(OnNode::now() == Nodes::kUnknown);
  }
  fake_core = 1;
  {
    const OnNode outer(&nodes);
    CHECK(OnNode::now() == 1);
    fake_core = 0;
    CHECK(OnNode::now() == 1);  // asked for once
    {
      const OnNode inner(&nodes);
      CHECK(OnNode::now() == 0);
    }
    CHECK(OnNode::now() == 1);
  }
  CHECK(OnNode::now() == Nodes::kUnknown);
}

}  // namespace
}  // namespace heddle::host
