#include "drivers/host/machine/nodes.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

namespace heddle::host {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string node_folder(const std::string& root, int number) {
  return root + "/sys/devices/system/node/node" + std::to_string(number);
}

// "32768K", "1M"
uint64_t bytes_of(const std::string& size) {
  uint64_t count = 0;
  const char* const end = size.data() + size.size();
  const auto [unit, wrong] = std::from_chars(size.data(), end, count);
  if (wrong != std::errc()) return 0;
  if (unit != end && *unit == 'K') return count << 10;
  if (unit != end && *unit == 'M') return count << 20;
  return count;
}

// The last cache that `core` reads through: how large it is, and who shares it.
std::pair<std::string, uint64_t> last_cache(const std::string& root, int core) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index";
  std::pair<std::string, uint64_t> last;
  uint64_t highest = 0;
  for (int index = 0;; ++index) {
    const std::string at = folder + std::to_string(index);
    const uint64_t level = bytes_of(line_of(at + "/level"));
    if (level == 0) return last;
    if (level <= highest) continue;
    highest = level;
    last = {line_of(at + "/shared_cpu_list"), bytes_of(line_of(at + "/size"))};
  }
}

uint64_t last_caches(const std::string& root, const std::vector<int>& cores) {
  uint64_t sum = 0;
  std::set<std::string> counted;
  for (int core : cores) {
    const auto [sharers, bytes] = last_cache(root, core);
    if (counted.insert(sharers).second) sum += bytes;
  }
  return sum;
}

// The nodes whose memory is no farther from `number` than its own.
std::vector<int> nodes_near(const std::string& root, int number, const std::vector<int>& all) {
  std::istringstream line(line_of(node_folder(root, number) + "/distance"));
  const std::vector<int> distances{std::istream_iterator<int>(line), {}};
  const auto own = static_cast<size_t>(std::find(all.begin(), all.end(), number) - all.begin());
  std::vector<int> near;
  if (distances.size() != all.size()) return near;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i != own && distances[i] <= distances[own]) near.push_back(all[i]);
  }
  return near;
}

}  // namespace

Nodes Nodes::read(const Budget& budget, const std::string& root, int (*core)()) {
  Nodes nodes;
  nodes.root_ = root;
  nodes.core_ = core;
  const std::vector<int> all = read_cpu_list(line_of(root + "/sys/devices/system/node/online"));
  for (int number : all) {
    std::vector<int> ours;
    const std::vector<int> its = read_cpu_list(line_of(node_folder(root, number) + "/cpulist"));
    std::set_intersection(its.begin(), its.end(), budget.numbers.begin(), budget.numbers.end(),
                          std::back_inserter(ours));
    if (!ours.empty()) nodes.add(number, ours, nodes_near(root, number, all));
  }
  if (nodes.nodes_.size() < 2) {
    nodes.nodes_.resize(1);
    return nodes;
  }
  for (Node& node : nodes.nodes_) node.cache_bytes = last_caches(root, node.cores);
  nodes.look_up_cores();
  return nodes;
}

void Nodes::add(int number, const std::vector<int>& cores, const std::vector<int>& near) {
  const auto is_near = [&](int other) { return std::find(near.begin(), near.end(), other) != near.end(); };
  for (Node& node : nodes_) {
    if (!std::any_of(node.numbers.begin(), node.numbers.end(), is_near)) continue;
    node.numbers.push_back(number);
    node.cores.insert(node.cores.end(), cores.begin(), cores.end());
    return;
  }
  nodes_.push_back({{number}, cores});
}

void Nodes::look_up_cores() {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (int core : nodes_[node].cores) {
      const auto at = static_cast<size_t>(core);
      if (at >= of_core_.size()) of_core_.resize(at + 1, kUnknown);
      of_core_[at] = static_cast<int>(node);
    }
  }
}

uint64_t Nodes::free_bytes(int node) const {
  uint64_t kib = 0;
  for (int number : nodes_[static_cast<size_t>(node)].numbers) {
    std::ifstream file(node_folder(root_, number) + "/meminfo");
    // "Node 0 MemFree:  123 kB". What was read from files and not used since is given up at once.
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string word, what;
      uint64_t value = 0;
      int its = 0;
      if (words >> word >> its >> what >> value && (what == "MemFree:" || what == "Inactive(file):"))
        kib += value;
    }
  }
  return kib << 10;
}

std::string Nodes::name(int node) const {
  std::string name;
  for (int number : nodes_[static_cast<size_t>(node)].numbers)
    name += (name.empty() ? "" : "+") + std::to_string(number);
  return name;
}

}  // namespace heddle::host
