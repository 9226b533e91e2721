// Where a library of NVIDIA's is looked for, and what is said of one that is not there.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "drivers/cuda/libraries/blas_lt_api.h"

namespace heddle::cuda {
namespace {

namespace fs = std::filesystem;

struct Folder {  // gone with the test
  Folder() {
    std::string name = (fs::temp_directory_path() / "heddle_library_search_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string named() const { return path.string(); }
  fs::path path;
};

Result<FoundLibrary> find(std::vector<const char*> names, std::vector<std::string> folders) {
  return find_library(names, folders);
}

std::string message(const Result<FoundLibrary>& found) {
  REQUIRE(!found.ok());
  CHECK(found.status().code() == heddle::Code::unavailable);
  return found.status().message();
}

std::string path_of_libm() {
  const auto loaded = find({"libm.so.6"}, {});
  REQUIRE(loaded.ok());
  Dl_info libm;
  REQUIRE(dladdr(dlsym(loaded->handle, "cos"), &libm) != 0);
  return libm.dli_fname;
}

TEST_CASE("a library that the process has loaded is taken before one that lies in a folder") {
  const Folder folder;
  fs::create_symlink(path_of_libm(), folder.path / "libm.so.6");
  const auto found = find({"libnone.so.2", "libm.so.6"}, {folder.named()});
  REQUIRE(found.ok());
  CHECK(found->file == "libm.so.6");
}

TEST_CASE("the newest name in the first folder is taken") {
  const Folder first, second;
  for (const Folder* each : {&first, &second}) {
    fs::create_symlink(path_of_libm(), each->path / "libheddle_old.so.1");
    fs::create_symlink(path_of_libm(), each->path / "libheddle_new.so.2");
  }
  const auto found =
      find({"libheddle_new.so.2", "libheddle_old.so.1"}, {"/nowhere", first.named(), second.named()});
  REQUIRE(found.ok());
  CHECK(found->file == first.named() + "/libheddle_new.so.2");
}

TEST_CASE("a library that is nowhere is named, with the places and what the loader said") {
  const std::string alone = message(find({"libheddle_no.so.2", "libheddle_no.so.1"}, {}));
  CHECK(alone.find("libheddle_no.so.2 or libheddle_no.so.1 was not found") != std::string::npos);
  CHECK(alone.find("looked for in the loader's places") != std::string::npos);
  CHECK(alone.find("cannot open shared object file") != std::string::npos);
  const std::string placed = message(find({"libheddle_no.so.2"}, {"/a/b", "/c"}));
  CHECK(placed.find("looked for in /a/b, /c and the loader's places") != std::string::npos);
}

TEST_CASE("a file that is no library is named with what the loader said of it") {
  const Folder folder;
  std::ofstream(folder.path / "libheddle_no.so.2") << "no library";
  const std::string said = message(find({"libheddle_no.so.2"}, {folder.named()}));
  CHECK(said.find(folder.named() + "/libheddle_no.so.2: ") != std::string::npos);
}

TEST_CASE("a library without cuBLASLt's functions is named with the function it lacks") {
  const auto other = find({"libm.so.6"}, {});
  REQUIRE(other.ok());
  const auto loaded = load_blas_lt(*other);
  REQUIRE(!loaded.ok());
  CHECK(loaded.status().code() == heddle::Code::unavailable);
  CHECK(loaded.status().message().find("libm.so.6 has no cublasLtGetVersion") != std::string::npos);
}

TEST_CASE("the file of a library is the one that the loader has, also where a name has found it") {
  const auto loaded = find({"libm.so.6"}, {});
  REQUIRE(loaded.ok());
  const std::string file = file_of(dlsym(loaded->handle, "cos"));
  CHECK(file == path_of_libm());
  CHECK(file.starts_with('/'));
  CHECK(file_of(nullptr).empty());
}

TEST_CASE("wheels are looked for beside the package that holds this code") {
  const auto folders = wheel_folders();
  REQUIRE(folders.size() == 4);
  CHECK(folders[0].ends_with("/nvidia/cu13/lib"));
  CHECK(folders[1].ends_with("/nvidia/cublas/lib"));
  CHECK(folders[2].ends_with("/nvidia/cudnn/lib"));
  CHECK(folders[3].ends_with("/nvidia/cuda_nvrtc/lib"));
}

}  // namespace
}  // namespace heddle::cuda
