#include "base/kept_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/kept_file.h"
#include "base/yield.h"

namespace heddle {
namespace {

constexpr uint64_t kMostBytes = 4 << 20;

Result<Lines> lines_of(const std::string& title, const std::string& identity, const std::string& all) {
  const size_t last = all.size() < 2 ? std::string::npos : all.rfind('\n', all.size() - 2);
  const std::string body = last == std::string::npos ? "" : all.substr(0, last + 1);
  if (body.empty() || all.substr(body.size()) != text("end ", checksum(body), '\n'))
    return Status::invalid("it is cut off or was changed");
  std::istringstream in(body);
  std::string line;
  if (!std::getline(in, line) || line != title) return Status::invalid("it is no such file of this version");
  if (!std::getline(in, line) || line != text("for ", identity))
    return Status::invalid("it was measured elsewhere: '", line, "', and this is '", identity, "'");
  Lines lines;
  while (std::getline(in, line)) lines.push_back(line);
  return lines;
}

Status system_failure(const std::string& what, const std::string& path) {
  return Status::invalid(what, " '", path, "': ", std::generic_category().message(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ < 0) return;
    ::flock(number_, LOCK_UN);  // a child that was forked meanwhile has the lock, too
    ::close(number_);
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
  const Deadline until = Deadline::in(KeptLines::kPatience);
  while (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_failure("locking", path);
    if (until.expired()) return Status::unavailable("another process is writing '", path, "'");
    give_way();
  }
  return {};
}

}  // namespace

KeptLines::KeptLines(std::string folder, std::string_view kind, std::string title, std::string identity)
    : folder_(std::move(folder)),
      title_(std::move(title)),
      identity_(std::move(identity)),
      path_(text(folder_, "/", kind, "-", checksum(identity_), ".txt")) {}

Result<Lines> KeptLines::read() const {
  HEDDLE_TRY_ASSIGN(const std::optional<std::string> all, read_kept(path_, kMostBytes));
  if (!all.has_value()) return Lines();
  Result<Lines> lines = lines_of(title_, identity_, *all);
  if (!lines.ok()) return lines.status().with_context(text("'", path_, "'"));
  return lines;
}

Status KeptLines::rewrite(const std::function<Lines(Lines)>& change) const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Status::invalid("making the folder '", folder_, "': ", error.message());
  const std::string lock_path = path_ + ".lock";
  const Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  HEDDLE_TRY(lock_file(lock, lock_path));
  Result<Lines> theirs = read();
  return replace(change(theirs.ok() ? *std::move(theirs) : Lines()));
}

Status KeptLines::replace(const Lines& lines) const {
  std::string all = text(title_, "\nfor ", identity_, '\n');
  for (const std::string& line : lines) all += line + '\n';
  all += text("end ", checksum(all), '\n');
  return replace_kept(path_, all);
}

}  // namespace heddle
