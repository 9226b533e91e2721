#include "base/kept_file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/atomic.h"
#include "base/thread.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMost = 1 << 20;

struct KeptFolder {  // gone with the test
  KeptFolder() {
    path = (fs::temp_directory_path() / "heddle-kept-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~KeptFolder() { fs::remove_all(path); }
  KeptFolder(const KeptFolder&) = delete;
  KeptFolder& operator=(const KeptFolder&) = delete;
  std::string path;
};

TEST_CASE("readers beside writers see whole files only, and nothing else is left in the folder") {
  const KeptFolder folder;
  const std::string path = folder.path + "/deeper/file";
  CHECK_FALSE(read_kept(path, kMost)->has_value());
  const auto content = [](int i) {
    return std::string(static_cast<size_t>(i) * 1000, static_cast<char>('a' + i));
  };
  REQUIRE(replace_kept(path, content(1)).ok());
  Atomic<int> wrong{0};
  {
    std::vector<Thread> threads;
    for (int i = 1; i <= 4; ++i) {
      threads.push_back(*Thread::start("keeps", [&, i] {
        for (int round = 0; round < 50; ++round) {
          if (!replace_kept(path, content(i)).ok()) wrong.add_relaxed(1);
          const auto read = read_kept(path, kMost);
          const bool whole =
              read.ok() && read->has_value() && content(static_cast<int>((*read)->size() / 1000)) == **read;
          if (!whole) wrong.add_relaxed(1);
        }
      }));
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(std::distance(fs::directory_iterator(folder.path + "/deeper"), {}) == 1);
}

TEST_CASE("a file that is too large, and a folder that is none, are named") {
  const KeptFolder folder;
  const std::string path = folder.path + "/file";
  REQUIRE(replace_kept(path, "12345").ok());
  CHECK(**read_kept(path, 5) == "12345");
  const Status large = read_kept(path, 4).status();
  CHECK(large.code() == Code::invalid);
  CHECK(large.message().find(path) != std::string::npos);
  CHECK_FALSE(read_kept(path + "/below", kMost)->has_value());
  const Status below = replace_kept(path + "/below", "x");
  CHECK(below.code() == Code::invalid);
  CHECK(below.message().find(path) != std::string::npos);
}

#if defined(__linux__)
TEST_CASE("a file that cannot be read, or not be written whole, is named, and the old one stays") {
  const Status unreadable = read_kept("/proc/self/mem", kMost).status();
  CHECK(unreadable.code() == Code::invalid);
  CHECK(unreadable.message().find("it cannot be read") != std::string::npos);

  const KeptFolder folder;
  const std::string path = folder.path + "/file";
  REQUIRE(replace_kept(path, "old").ok());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit fails in its place
  rlimit small = before;
  small.rlim_cur = 1000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status cut = replace_kept(path, std::string(5000, 'n'));
  const Status whole = replace_kept(folder.path + "/other", std::string(1000, 'n'));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(cut.code() == Code::invalid);
  CHECK(cut.message().find("writing '" + path) != std::string::npos);
  CHECK(whole.ok());
  CHECK(**read_kept(path, kMost) == "old");
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
}
#endif

TEST_CASE("a checksum tells bytes apart that differ in one, and has 16 digits") {
  CHECK(checksum("").size() == 16);
  CHECK(checksum("heddle") == checksum("heddle"));
  CHECK(checksum("heddle") != checksum("heddlf"));
}

}  // namespace
}  // namespace heddle
