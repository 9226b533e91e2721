#include "base/kept_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace heddle {
namespace {

namespace fs = std::filesystem;

Status file_failure(const std::string& what, const std::string& path) {
  return Status::invalid(what, " '", path, "': ", std::generic_category().message(errno));
}

// A file beside the one that it becomes; gone unless it did.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path)
      : name_(text(path, ".XXXXXX")), number_(::mkostemp(name_.data(), O_CLOEXEC)) {}
  ~Unfinished() {
    if (number_ < 0) return;
    ::close(number_);
    if (!renamed_) ::unlink(name_.c_str());
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  Status write(std::string_view bytes) const {
    constexpr mode_t kForAll = 0644;  // a folder may be another user's, in a container's image for instance
    if (number_ < 0 || ::fchmod(number_, kForAll) != 0) return file_failure("opening", name_);
    while (!bytes.empty()) {
      const ssize_t written = ::write(number_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return file_failure("writing", name_);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }
  Status become(const std::string& path) {
    if (std::rename(name_.c_str(), path.c_str()) != 0) return file_failure("renaming to", path);
    renamed_ = true;
    return {};
  }

 private:
  std::string name_;
  const int number_;
  bool renamed_ = false;
};

}  // namespace

std::string checksum(std::string_view bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

Result<std::optional<std::string>> read_kept(const std::string& path, uint64_t bytes_max) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return std::optional<std::string>();
  if (error) return Status::invalid("'", path, "': ", error.message());
  if (bytes > bytes_max) return Status::invalid("'", path, "': it is too large");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  if (!file || !all) return Status::invalid("'", path, "': it cannot be read");
  return std::optional<std::string>(all.str());
}

Status replace_kept(const std::string& path, std::string_view bytes) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Status::invalid("making the folder '", folder.string(), "': ", error.message());
  Unfinished file(path);
  HEDDLE_TRY(file.write(bytes));
  return file.become(path);
}

}  // namespace heddle
