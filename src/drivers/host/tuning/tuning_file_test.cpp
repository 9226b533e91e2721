#include "drivers/host/tuning/tuning_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/thread.h"
#include "drivers/host/machine/folder_fixture.h"
#include "tests/child_fixture.h"

namespace heddle::host {
namespace {

constexpr const char* kHere = "a processor; 16 cores; oneDNN 3.2.1; rules 1";
constexpr int kWriters = 4, kKeysOfWriter = 12;

TuningKey key_number(int64_t i) { return {64, 512, 1024 + i, i % 2 == 0, i % 3 == 0, i % 5 == 0 ? 1 : 16}; }
Way way_number(int64_t i) { return {i % 4 * 8, 1 + i % 3, 1 + i % 5}; }

Decisions numbers(int64_t from, int64_t to) {
  Decisions out;
  for (int64_t i = from; i < to; ++i) out[key_number(i)] = way_number(i);
  return out;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A decision at a time, as a process that compiles shapes does.
bool write_numbers(const std::string& folder, int writer) {
  const TuningFile file(folder, kHere);
  Decisions mine;
  for (int64_t i = writer * kKeysOfWriter; i < (writer + 1) * kKeysOfWriter; ++i) {
    mine[key_number(i)] = way_number(i);
    Status merged;
    do merged = file.merge(mine);
    while (merged.code() == Code::unavailable);  // the machine is slow, the others are at it
    if (!merged.ok()) return false;
  }
  return true;
}

TEST_CASE("what is written is read, and what is there stays") {
  const TestFolder folder;
  const TuningFile file(folder.path() + "/made/anew", kHere);
  CHECK(file.read()->empty());
  Decisions mine = numbers(0, 7);
  REQUIRE(file.merge(mine).ok());
  CHECK(*file.read() == numbers(0, 7));

  Decisions others = numbers(5, 9);
  others[key_number(5)] = {16, 2, 2};
  REQUIRE(file.merge(others).ok());
  CHECK(others == numbers(0, 9));
  CHECK(*file.read() == numbers(0, 9));
}

TEST_CASE("a file that is cut off, changed, or another processor's is invalid, and merging replaces it") {
  const TestFolder folder;
  const TuningFile file(folder.path(), kHere);
  Decisions mine = numbers(0, 5);
  REQUIRE(file.merge(mine).ok());
  const std::string whole = contents(file.path());
  const TuningFile elsewhere(folder.path() + "/elsewhere", "another processor");
  REQUIRE(elsewhere.merge(mine).ok());

  std::vector<std::string> wrong = {
      contents(elsewhere.path()), "", "\n", "heddle", std::string(1000, 'x'), whole + "more\n"};
  for (size_t bytes = 1; bytes < whole.size(); ++bytes) wrong.push_back(whole.substr(0, bytes));
  for (size_t at = 0; at < whole.size(); ++at) {
    wrong.push_back(whole);
    wrong.back()[at] = static_cast<char>(wrong.back()[at] ^ 1);
  }
  for (const std::string& bytes : wrong) {
    std::ofstream(file.path(), std::ios::binary) << bytes;
    const Result<Decisions> read = file.read();
    CAPTURE(bytes);
    REQUIRE_FALSE(read.ok());
    CHECK(read.status().code() == Code::invalid);
    CHECK(read.status().message().find(file.path()) != std::string::npos);
  }
  Decisions anew = numbers(3, 4);
  REQUIRE(file.merge(anew).ok());
  CHECK(*file.read() == numbers(3, 4));
}

TEST_CASE("writers of several threads at once lose nothing") {
  const TestFolder folder;
  Atomic<int> failed{0};
  run_together(kWriters, [&](int writer) {
    if (!write_numbers(folder.path(), writer)) failed.add_relaxed(1);
  });
  CHECK(failed.load_acquire() == 0);
  CHECK(*TuningFile(folder.path(), kHere).read() == numbers(0, int64_t{kWriters} * kKeysOfWriter));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);  // it and its lock
}

TEST_CASE("child: a writer of ways" * doctest::skip()) {
  const char* folder = std::getenv("HEDDLE_TEST_FOLDER");
  const char* writer = std::getenv("HEDDLE_TEST_WRITER");
  REQUIRE(folder != nullptr);
  REQUIRE(writer != nullptr);
  CHECK(write_numbers(folder, std::atoi(writer)));
}

TEST_CASE("writers of several processes at once lose nothing") {
  const TestFolder folder;
  std::vector<test::Child> children(kWriters);
  run_together(kWriters, [&](int writer) {
    children[static_cast<size_t>(writer)] =
        test::run_child("child: a writer of ways",
                        {"HEDDLE_TEST_FOLDER=" + folder.path(), text("HEDDLE_TEST_WRITER=", writer)});
  });
  for (const test::Child& child : children) CHECK_MESSAGE(child.exit_code == 0, child.said);
  CHECK(*TuningFile(folder.path(), kHere).read() == numbers(0, int64_t{kWriters} * kKeysOfWriter));
}

TEST_CASE("a writer that keeps the lock is not waited for without end") {
  const TestFolder folder;
  const TuningFile file(folder.path(), kHere);
  Decisions mine = numbers(0, 1);
  REQUIRE(file.merge(mine).ok());
  const int lock = ::open((file.path() + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(lock >= 0);
  REQUIRE(::flock(lock, LOCK_EX) == 0);
  Decisions more = numbers(1, 2);
  CHECK(file.merge(more).code() == Code::unavailable);
  CHECK(more == numbers(1, 2));
  ::close(lock);
  REQUIRE(file.merge(more).ok());
  CHECK(*file.read() == numbers(0, 2));
}

TEST_CASE("a folder that cannot be written is an error that names it") {
  const TestFolder folder;
  std::ofstream(folder.path() + "/file") << "no folder";
  const TuningFile file(folder.path() + "/file/below", kHere);
  CHECK(file.read()->empty());
  Decisions mine = numbers(0, 1);
  const Status merged = file.merge(mine);
  CHECK(merged.code() == Code::invalid);
  CHECK(merged.message().find("/file/below") != std::string::npos);
}

TEST_CASE("an identity names the processor, its cores, oneDNN and our rules") {
  const TestFolder root;
  std::filesystem::create_directories(root.path() + "/proc");
  std::ofstream(root.path() + "/proc/cpuinfo")
      << "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: A Xeon\n"
      << "stepping\t: 2\ncpu MHz\t\t: 2100.1\n\nprocessor\t: 1\nvendor_id\t: Another\n";
  const std::string intel = tuning_identity(16, root.path());
  CHECK(
      intel.starts_with("vendor_id GenuineIntel, cpu family 6, model 207, model name A Xeon, stepping 2; "
                        "16 cores; instructions "));
  CHECK(intel.find("; oneDNN ") != std::string::npos);
  CHECK(intel.ends_with("; rules 1"));
  CHECK(intel != tuning_identity(8, root.path()));
  CHECK(tuning_identity(16, root.path() + "/nowhere").starts_with("an unnamed processor; "));
  CHECK(tuning_identity(4).find('\n') == std::string::npos);
}

}  // namespace
}  // namespace heddle::host
