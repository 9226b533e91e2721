#include "drivers/host/machine/cpu_budget.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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

#if defined(__linux__)
// The kernel refuses a mask that is narrower than its own, which nothing tells: it is doubled until it fits.
std::vector<int> affinity_of_this_thread() {
  constexpr size_t kWidest = size_t{1} << 20;
  for (size_t width = CPU_SETSIZE; width <= kWidest; width *= 2) {
    std::vector<cpu_set_t> sets(width / CPU_SETSIZE);
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<int> numbers;
    for (size_t cpu = 0; cpu < width; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) numbers.push_back(static_cast<int>(cpu));
    }
    return numbers;
  }
  return {};
}
#else
std::vector<int> affinity_of_this_thread() { return {}; }
#endif

std::vector<int> allowed_processors(const std::string& root) {
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  if (!root.empty()) {
    std::ifstream file(root + "/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(kKey)) return read_cpu_list(line.substr(kKey.size()));
    }
  }
  return affinity_of_this_thread();
}

int online_processors(const std::string& root) {
  std::ifstream file(root + "/sys/devices/system/cpu/online");
  std::string line;
  std::getline(file, line);
  const std::vector<int> listed = read_cpu_list(line);
  if (!listed.empty()) return static_cast<int>(listed.size());
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

}  // namespace

std::vector<int> read_cpu_list(const std::string& text) {
  constexpr int kMost = 1 << 20;
  std::vector<int> numbers;
  for (const std::string& part : split(text, ',')) {
    int first = 0, last = 0;
    const size_t begin = std::min(part.find_first_not_of(" \t"), part.size());
    const char* const end = part.data() + part.size();
    const auto [at, wrong] = std::from_chars(part.data() + begin, end, first);
    if (wrong != std::errc() || first < 0 || first >= kMost) continue;
    last = first;
    if (at != end && *at == '-' && std::from_chars(at + 1, end, last).ec != std::errc()) continue;
    for (int cpu = first; cpu <= std::min(last, kMost - 1); ++cpu) numbers.push_back(cpu);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string Budget::why() const {
  std::ostringstream out;
  out << cores << ": affinity " << processors << " of " << online;
  if (quota > 0) out << ", cgroup quota " << quota << " -> " << std::max(static_cast<int>(quota), 1);
  return out.str();
}

Budget read_budget(const std::string& root) {
  constexpr double kNone = 1e9;
  Budget budget;
  budget.numbers = allowed_processors(root);
  budget.online = online_processors(root);
  budget.processors = budget.numbers.empty() ? budget.online : static_cast<int>(budget.numbers.size());
  budget.online = std::max(budget.online, budget.processors);
  double quota = kNone;
  double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : group_folders(root, "")) {
    quota = std::min(quota, quota_v2(folder, quota));
    memory = std::min(memory, number(first_word(folder + "/memory.max")).value_or(memory));
  }
  for (const std::string& folder : group_folders(root, "cpu"))
    quota = std::min(quota, quota_v1(folder, quota));
  for (const std::string& folder : group_folders(root, "memory")) {
    memory = std::min(memory, number(first_word(folder + "/memory.limit_in_bytes")).value_or(memory));
  }
  if (quota < kNone) budget.quota = quota;
  budget.cores = std::max(static_cast<int>(std::min<double>(budget.processors, quota)), 1);
  budget.memory_bytes = static_cast<uint64_t>(memory);
  return budget;
}

}  // namespace heddle::host
