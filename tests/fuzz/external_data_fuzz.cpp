// Any external_data of a tensor: bytes of a file in the model's folder, or words.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz_fixture.h"
#include "onnx/external_data.h"

namespace heddle::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr char kInside = 'i';  // every byte of a file in the folder; beside it lies another letter

void write(const fs::path& path, size_t size, char letter) {
  std::ofstream(path, std::ios::binary) << std::string(size, letter);
}

// Of the process; the next one makes another.
struct Folder {
  fs::path root;
  Folder() {
    std::string name = (fs::temp_directory_path() / "heddle_fuzz_XXXXXX").string();
    must(::mkdtemp(name.data()) != nullptr, "a folder can be made");
    root = name;
    fs::create_directories(root / "model" / "part");
    write(root / "secret", 64, 'x');
    write(root / "model" / "w", 64, kInside);
    write(root / "model" / "part" / "w", 16, kInside);
    write(root / "model" / "none", 0, kInside);
    fs::create_symlink("../secret", root / "model" / "out");
    fs::create_symlink("..", root / "model" / "up");
    fs::create_symlink("w", root / "model" / "link");
    fs::create_symlink("round", root / "model" / "round");
    must(::mkfifo((root / "model" / "pipe").c_str(), 0600) == 0, "a pipe can be made");
  }
  ~Folder() { fs::remove_all(root); }
};

void run(Bytes bytes) {
  static const Folder folder;
  static const char* const kFiles[] = {"w",     "part/w", "none", "out",       "up/secret",  "link",
                                       "round", "pipe",   "part", "../secret", "/etc/passwd"};
  onnx::ExternalData data((folder.root / "model").string());
  for (int tensors = 0; tensors < 4 && !bytes.over(); ++tensors) {
    onnx::proto::TensorProto tensor;
    for (size_t entries = bytes.below(5); entries > 0; --entries) {
      static const char* const kKeys[] = {"location", "offset", "length", "checksum", "location"};
      auto& entry = *tensor.add_external_data();
      entry.set_key(kKeys[bytes.below(std::size(kKeys))]);
      switch (bytes.below(3)) {
        case 0:
          entry.set_value(kFiles[bytes.below(std::size(kFiles))]);
          break;
        case 1:
          entry.set_value(std::to_string(bytes.number()));
          break;
        default:
          entry.set_value(std::string(bytes.words(24)));
          break;
      }
    }
    const auto size = static_cast<uint64_t>(bytes.number());
    const Result<onnx::ExternalData::Bytes> found = data.find(tensor, size);
    if (!found.ok()) {
      must(found.status().message().size() > 3, "an error says what is wrong");
      must(found.status().code() != Code::internal, "a file's fault is not ours");
      continue;
    }
    must(found->bytes.size() == size, "as many bytes as were asked for");
    for (const std::byte each : found->bytes)
      must(static_cast<char>(each) == kInside, "no byte from outside the folder");
  }
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run({data, size});
  return 0;
}
