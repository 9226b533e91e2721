#include "drivers/host/tuning/tuning_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/yield.h"

namespace heddle::host {
namespace {

constexpr std::string_view kTitle = "heddle products 1";
constexpr size_t kMostBytes = 4 << 20;
constexpr int64_t kMostOfWay = 1 << 20;

std::string checksum(std::string_view bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string line_of(const TuningKey& key, const Way& way) {
  return text("product ", key.rows, ' ', key.k, ' ', key.n, key.bf16 ? " bf16" : " f32",
              key.rows_only ? " rows " : " any ", key.cores, " : ", way.block, ' ', way.parts, ' ',
              way.panels, '\n');
}

std::optional<std::pair<TuningKey, Way>> parse_line(const std::string& line) {
  std::istringstream in(line);
  std::string product, precision, cut, colon, rest;
  TuningKey key{};
  Way way;
  in >> product >> key.rows >> key.k >> key.n >> precision >> cut >> key.cores >> colon >> way.block >>
      way.parts >> way.panels;
  if (!in || in >> rest || product != "product" || colon != ":") return std::nullopt;
  if ((precision != "bf16" && precision != "f32") || (cut != "rows" && cut != "any")) return std::nullopt;
  key.bf16 = precision == "bf16";
  key.rows_only = cut == "rows";
  const auto fits = [](int64_t number, int64_t least) { return number >= least && number <= kMostOfWay; };
  if (!fits(way.block, 0) || !fits(way.parts, 1) || !fits(way.panels, 1)) return std::nullopt;
  return std::pair(key, way);
}

std::string text_of(const std::string& identity, const Decisions& decisions) {
  std::string out = text(kTitle, "\nfor ", identity, '\n');
  for (const auto& [key, way] : decisions) out += line_of(key, way);
  return out + text("end ", checksum(out), '\n');
}

Result<Decisions> decisions_of(const std::string& identity, const std::string& all) {
  const size_t last = all.size() < 2 ? std::string::npos : all.rfind('\n', all.size() - 2);
  const std::string body = last == std::string::npos ? "" : all.substr(0, last + 1);
  if (body.empty() || all.substr(body.size()) != text("end ", checksum(body), '\n'))
    return Status::invalid("it is cut off or was changed");
  std::istringstream in(body);
  std::string line;
  if (!std::getline(in, line) || line != kTitle) return Status::invalid("it is no such file of this version");
  if (!std::getline(in, line) || line != text("for ", identity))
    return Status::invalid("it was measured elsewhere: '", line, "', and this is '", identity, "'");
  Decisions decisions;
  while (std::getline(in, line)) {
    const auto parsed = parse_line(line);
    if (!parsed) return Status::invalid("it has the line '", line, "'");
    decisions.insert(*parsed);
  }
  return decisions;
}

Status system_failure(const std::string& what, const std::string& path) {
  return Status::invalid(what, " '", path, "': ", std::generic_category().message(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Not the file itself, which each writer replaces. A writer that was stopped keeps the lock: so nobody waits
// for it without end.
Status lock_file(const Descriptor& file, const std::string& path) {
  if (file.number() < 0) return system_failure("opening", path);
  const Deadline until = Deadline::in(TuningFile::kPatience);
  while (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_failure("locking", path);
    if (until.expired()) return Status::unavailable("another process is writing '", path, "'");
    give_way();
  }
  return {};
}

Status write_all(const Descriptor& file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_failure("writing", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

TuningFile::TuningFile(std::string folder, std::string identity)
    : folder_(std::move(folder)),
      identity_(std::move(identity)),
      path_(text(folder_, "/products-", checksum(identity_), ".txt")) {}

Result<Decisions> TuningFile::read() const {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path_, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return Decisions();
  if (error) return Status::invalid("'", path_, "': ", error.message());
  if (bytes > kMostBytes) return Status::invalid("'", path_, "': it is too large");
  std::ifstream file(path_, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  if (!file || !all) return Status::invalid("'", path_, "': it cannot be read");
  Result<Decisions> decisions = decisions_of(identity_, all.str());
  if (!decisions.ok()) return decisions.status().with_context(text("'", path_, "'"));
  return decisions;
}

Status TuningFile::merge(Decisions& mine) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Status::invalid("making the folder '", folder_, "': ", error.message());
  const std::string lock_path = path_ + ".lock";
  const Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  HEDDLE_TRY(lock_file(lock, lock_path));
  Decisions all;
  if (Result<Decisions> theirs = read(); theirs.ok()) all = *std::move(theirs);
  all.insert(mine.begin(), mine.end());  // what is there stays
  HEDDLE_TRY(replace(all));
  mine = std::move(all);
  return {};
}

Status TuningFile::replace(const Decisions& all) const {
  const std::string temporary = text(path_, ".", ::getpid(), ".new");  // one writer at a time, by the lock
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.number() < 0) return system_failure("opening", temporary);
    HEDDLE_TRY(write_all(file, text_of(identity_, all), temporary));
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) return system_failure("renaming to", path_);
  return {};
}

}  // namespace heddle::host
