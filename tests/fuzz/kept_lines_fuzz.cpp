// Any bytes in a file that processes keep for each other: its lines or words, and it can be written again.
#include <filesystem>
#include <fstream>

#include "base/kept_file.h"
#include "drivers/host/tuning/tuning_file.h"
#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr char kTitle[] = "heddle products 1", kIdentity[] = "a processor";

std::string folder_of_this_process() {
  std::string name = (fs::temp_directory_path() / "heddle_fuzz_XXXXXX").string();
  must(::mkdtemp(name.data()) != nullptr, "a folder can be made");
  return name;
}

struct Folder {
  std::string path = folder_of_this_process();
  ~Folder() { fs::remove_all(path); }
};

// The bytes as they are, or within a frame that read() takes.
std::string content_of(Bytes bytes) {
  const bool framed = bytes.flag();
  std::string all(bytes.rest());
  if (!framed) return all;
  if (!all.empty() && all.back() != '\n') all += '\n';
  all = text(kTitle, "\nfor ", kIdentity, '\n', all);
  return text(all, "end ", checksum(all), '\n');
}

void run(Bytes bytes) {
  static const Folder folder;
  const host::TuningFile file(folder.path, kIdentity);
  const KeptLines lines(folder.path, "products", kTitle, kIdentity);
  must(file.path() == lines.path(), "a tuning file is kept lines");
  std::ofstream(file.path(), std::ios::binary) << content_of(bytes);

  const Result<Lines> kept = lines.read();
  const Result<host::Decisions> decisions = file.read();
  if (!kept.ok()) must(kept.status().message().size() > 3, "an error says what is wrong");
  if (!decisions.ok()) must(decisions.status().message().size() > 3, "an error says what is wrong");
  must(kept.ok() || !decisions.ok(), "no decisions of a file that cannot be read");

  host::Decisions mine = {{{8, 16, 32, false, true, 1}, {}}};
  const host::Decisions own = mine;
  must(file.merge(mine).ok(), "a file of any bytes can be replaced");
  const Result<host::Decisions> after = file.read();
  must(after.ok() && after->size() == mine.size(), "what was written is read again");
  must(after->contains(own.begin()->first), "what was added is there");
  if (!decisions.ok()) return;
  for (const auto& [key, way] : *decisions) {
    must(after->contains(key), "what was there stays");
    must(after->at(key).block == way.block && after->at(key).parts == way.parts, "and is the same");
  }
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run({data, size});
  return 0;
}
