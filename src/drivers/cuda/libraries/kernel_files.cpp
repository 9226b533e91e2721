#include "drivers/cuda/libraries/kernel_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/kept_file.h"

namespace heddle::cuda {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestFile = 16 << 20;
constexpr const char* kEnding = ".kernel";

// What others remove meanwhile is not among them.
std::vector<fs::directory_entry> kernels_in(const std::string& folder) {
  std::vector<fs::directory_entry> all;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    if (each->path().extension() == kEnding) all.push_back(*each);
  }
  return all;
}

}  // namespace

KernelFiles::KernelFiles(const std::string& folder, std::string identity,
                         std::function<void(const std::string&)> warn)
    : folder_(folder.empty() ? "" : text(folder, "/kernels")),
      identity_(std::move(identity)),
      warn_(std::move(warn)) {}

std::string KernelFiles::path_of(const std::string& source) const {
  return text(folder_, '/', checksum(head_of(source)), kEnding);
}

std::string KernelFiles::head_of(const std::string& source) const {
  return text("heddle kernel 1\nfor ", identity_, '\n', source, "\ncode\n");
}

std::string KernelFiles::describe() const {
  if (folder_.empty()) return "not kept: there is no folder for them";
  return text("kept in ", folder_, ": ", count());
}

size_t KernelFiles::count() const { return kernels_in(folder_).size(); }

std::optional<std::string> KernelFiles::find(const std::string& source) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(source), head = head_of(source);
  const auto damaged = [&](std::string_view why) {
    if (!unreadable_.exchange_acq_rel(true))
      warn_(text("a kept kernel is not used and will be compiled anew: ", why));
    return std::nullopt;
  };
  const Result<std::optional<std::string>> read = read_kept(path, kLargestFile);
  if (!read.ok()) return damaged(read.status().message());
  if (!read->has_value()) return std::nullopt;
  const std::string& all = **read;
  constexpr size_t kEndBytes = std::string_view("end 0123456789abcdef\n").size();
  const size_t body = all.size() < kEndBytes ? 0 : all.size() - kEndBytes;
  if (all.substr(body) != text("end ", checksum(std::string_view(all).substr(0, body)), '\n'))
    return damaged(text('\'', path, "': it is cut off or was changed"));
  if (!all.starts_with(head)) return std::nullopt;  // of another source with this name
  return all.substr(head.size(), body - head.size());
}

void KernelFiles::keep(const std::string& source, const std::string& code) const {
  if (folder_.empty() || unwritable_.load_acquire()) return;
  make_room();
  std::string all = head_of(source) + code;
  all += text("end ", checksum(all), '\n');
  const Status written = replace_kept(path_of(source), all);
  if (!written.ok() && !unwritable_.exchange_acq_rel(true))
    warn_(text("compiled kernels are kept for this process only: ", written.message()));
}

// Where it fails the folder grows by one, and the next one tries again.
void KernelFiles::make_room() const {
  std::vector<fs::directory_entry> all = kernels_in(folder_);
  if (all.size() < kMost) return;
  const auto age = [](const fs::directory_entry& file) {
    std::error_code gone;
    return file.last_write_time(gone);
  };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  for (size_t i = 0; i + kMost <= all.size(); ++i) {
    std::error_code gone;
    fs::remove(all[i].path(), gone);
  }
}

}  // namespace heddle::cuda
