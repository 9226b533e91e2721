#include "drivers/host/machine/cpu_budget.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace heddle::host {
namespace {

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(line);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool lists(const std::string& comma_separated, std::string_view wanted) {
  for (const std::string& part : split(comma_separated, ',')) {
    if (part == wanted) return true;
  }
  return false;
}

std::optional<std::string> first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (file >> word) return word;
  return std::nullopt;
}

std::optional<double> number(const std::optional<std::string>& word) {
  if (!word || word->empty() || word->find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stod(*word);
}

// A mounted hierarchy: where it is, and which part of it is visible there.
struct Mount {
  std::string point;
  std::string visible_root;
};

// `controller` is "cpu" or "memory" for version 1, empty for version 2.
std::optional<Mount> find_mount(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> left = split(line.substr(0, dash), ' ');
    const std::vector<std::string> right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool fits =
        controller.empty() ? right[0] == "cgroup2" : right[0] == "cgroup" && lists(right[2], controller);
    if (fits) return Mount{left[4], left[3]};
  }
  return std::nullopt;
}

std::optional<std::string> find_group(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool fits = controller.empty() ? controllers.empty() : lists(controllers, controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folders of our group and of those above it, as far as they are visible.
std::vector<std::string> group_folders(const std::string& root, std::string_view controller) {
  const std::optional<Mount> mount = find_mount(root, controller);
  const std::optional<std::string> group = find_group(root, controller);
  if (!mount || !group) return {};
  std::string below = *group == "/" ? "" : *group;
  if (mount->visible_root != "/" && below.starts_with(mount->visible_root))
    below.erase(0, mount->visible_root.size());
  if (below.find("..") != std::string::npos)
    below.clear();  // outside the container's view: its root is what binds us
  std::vector<std::string> folders;
  for (;;) {
    folders.push_back(root + mount->point + below);
    if (below.empty()) return folders;
    below.erase(std::min(below.rfind('/'), below.size()));
  }
}

double quota_v2(const std::string& folder, double otherwise) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota, period;
  file >> quota >> period;
  const std::optional<double> q = number(quota), p = number(period);
  return q && p && *p > 0 ? *q / *p : otherwise;
}

double quota_v1(const std::string& folder, double otherwise) {
  const std::optional<double> q = number(first_word(folder + "/cpu.cfs_quota_us"));
  const std::optional<double> p = number(first_word(folder + "/cpu.cfs_period_us"));
  return q && p && *p > 0 ? *q / *p : otherwise;
}

int affinity() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
#endif
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));  // more cores than the mask has bits
}

}  // namespace

Budget read_budget(const std::string& root) {
  const int processors = affinity();
  double cores = processors;
  double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : group_folders(root, "")) {
    cores = std::min(cores, quota_v2(folder, cores));
    memory = std::min(memory, number(first_word(folder + "/memory.max")).value_or(memory));
  }
  for (const std::string& folder : group_folders(root, "cpu"))
    cores = std::min(cores, quota_v1(folder, cores));
  for (const std::string& folder : group_folders(root, "memory")) {
    memory = std::min(memory, number(first_word(folder + "/memory.limit_in_bytes")).value_or(memory));
  }
  return {std::max(static_cast<int>(cores), 1), processors, static_cast<uint64_t>(memory)};
}

}  // namespace heddle::host
