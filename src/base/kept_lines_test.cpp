#include "base/kept_lines.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/atomic.h"
#include "base/kept_file.h"
#include "base/thread.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMostOfLines = 1 << 20;

struct LinesFolder {  // gone with the test
  LinesFolder() {
    path = (fs::temp_directory_path() / "heddle-lines-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~LinesFolder() { fs::remove_all(path); }
  LinesFolder(const LinesFolder&) = delete;
  LinesFolder& operator=(const LinesFolder&) = delete;
  KeptLines kept(const std::string& identity = "this machine", const std::string& title = "lines 1") const {
    return {path, "test", title, identity};
  }
  std::string path;
};

Lines lines_in(const KeptLines& kept) { return kept.read().value(); }

Status rewritten(const KeptLines& kept, const Lines& lines) {
  return kept.rewrite([&](const Lines&) { return lines; });
}

std::string bytes_of(const KeptLines& kept) { return *read_kept(kept.path(), kMostOfLines).value(); }

TEST_CASE(
    "lines are read as they were written, none of no file, and a writer is given those that it replaces") {
  const LinesFolder folder;
  const KeptLines kept = folder.kept();
  CHECK(lines_in(kept).empty());
  for (const Lines& lines : {Lines{"one"}, Lines{}, Lines{"", "a b", ""}, Lines{"for nobody", "end 0"}}) {
    const Lines before = lines_in(kept);
    std::optional<Lines> given;
    REQUIRE(kept.rewrite([&](const Lines& theirs) {
                  given = theirs;
                  return lines;
                })
                .ok());
    CHECK(given == before);
    CHECK(lines_in(kept) == lines);
  }
}

TEST_CASE(
    "a file that is cut off anywhere, or changed in any byte, is refused, and its lines are given to "
    "nobody") {
  const LinesFolder folder;
  const KeptLines kept = folder.kept();
  REQUIRE(rewritten(kept, {"one", "two"}).ok());
  const std::string whole = bytes_of(kept);
  const auto is_refused = [&](const std::string& bytes) {
    REQUIRE(replace_kept(kept.path(), bytes).ok());
    const Status status = kept.read().status();
    return status.code() == Code::invalid && status.message().find(kept.path()) != std::string::npos;
  };
  for (size_t length = 1; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK(is_refused(whole.substr(0, length)));
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    std::string changed = whole;
    changed[at] = changed[at] == 'x' ? 'y' : 'x';
    CHECK(is_refused(changed));
  }
  for (const char* bytes : {"\n", "\n\n", "a\n", "end\n", "a\nend\n"}) CHECK(is_refused(bytes));
  bool none = false;
  REQUIRE(kept.rewrite([&](const Lines& theirs) {
                none = theirs.empty();
                return Lines{"new"};
              })
              .ok());
  CHECK(none);
  CHECK(lines_in(kept) == Lines{"new"});
}

TEST_CASE("a file of another title or identity is refused, and the reason named") {
  const LinesFolder folder;
  const KeptLines kept = folder.kept();
  REQUIRE(rewritten(kept, {"one"}).ok());
  const KeptLines titled = folder.kept("this machine", "lines 2"), other = folder.kept("another one");
  CHECK(titled.read().status().message().find("of this version") != std::string::npos);
  REQUIRE(other.path() != kept.path());
  CHECK(lines_in(other).empty());
  fs::copy_file(kept.path(), other.path());
  const std::string message = other.read().status().message();
  CHECK(message.find("for this machine") != std::string::npos);
  CHECK(message.find("another one") != std::string::npos);
}

TEST_CASE("writers take turns: no line is lost that a writer was told is written") {
  constexpr int kThreads = 4, kRounds = 25;
  const LinesFolder folder;
  Atomic<int> late{0}, wrong{0};
  run_together(kThreads, [&](int thread) {
    const KeptLines kept = folder.kept();
    for (int round = 0; round < kRounds; ++round) {
      const Status status = kept.rewrite([&](Lines theirs) {
        theirs.push_back(text(thread, " ", round));
        return theirs;
      });
      if (status.code() == Code::unavailable) {
        late.add_relaxed(1);
        --round;
      } else if (!status.ok()) {
        wrong.add_relaxed(1);
      }
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  Lines lines = lines_in(folder.kept());
  CHECK(lines.size() == kThreads * kRounds);
  std::sort(lines.begin(), lines.end());
  CHECK(std::unique(lines.begin(), lines.end()) == lines.end());
  MESSAGE("late ", late.load_relaxed(), " times");
}

TEST_CASE("a writer waits for the lock for a while, and no longer; a reader does not ask for it") {
  const LinesFolder folder;
  const KeptLines kept = folder.kept();
  REQUIRE(rewritten(kept, {"one"}).ok());
  const int held = ::open((kept.path() + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(held >= 0);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  const TimePoint begin = Clock::real().now();
  const Status late = rewritten(kept, {"two"});
  CHECK(late.code() == Code::unavailable);
  CHECK(late.message().find(kept.path()) != std::string::npos);
  CHECK(Clock::real().now() - begin >= KeptLines::kPatience);
  CHECK(lines_in(kept) == Lines{"one"});
  REQUIRE(::flock(held, LOCK_UN) == 0);
  REQUIRE(rewritten(kept, {"two"}).ok());
  CHECK(::flock(held, LOCK_EX | LOCK_NB) == 0);  // the writer kept nothing
  ::close(held);
  CHECK(lines_in(kept) == Lines{"two"});
}

TEST_CASE("a folder that cannot be made, and a lock that cannot be opened, are named") {
  const LinesFolder folder;
  REQUIRE(replace_kept(folder.path + "/file", "bytes").ok());
  const KeptLines below(folder.path + "/file", "test", "lines 1", "this machine");
  const Status no_folder = rewritten(below, {"one"});
  CHECK(no_folder.code() == Code::invalid);
  CHECK(no_folder.message().find("making the folder") != std::string::npos);
  const KeptLines kept = folder.kept();
  REQUIRE(fs::create_directory(kept.path() + ".lock"));
  const Status no_lock = rewritten(kept, {"one"});
  CHECK(no_lock.code() == Code::invalid);
  CHECK(no_lock.message().find("opening '" + kept.path() + ".lock'") != std::string::npos);
  CHECK(lines_in(kept).empty());
}

}  // namespace
}  // namespace heddle
