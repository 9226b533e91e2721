#include "tests/cuda_double/nvrtc_double.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/kept_file.h"
#include "base/sync.h"
#include "drivers/cuda/kernels/compiled_chain.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/kernel_table.h"

namespace heddle::cuda_double {
namespace {

namespace fs = std::filesystem;
using cuda::NvrtcCode;

constexpr std::string_view kTitle = "a chain of the double, ";  // and where it lies
constexpr const char* kArchitecture = "--gpu-architecture=sm_90";

struct Source {
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string code, log = std::string(1, '\0');
};

struct Gathered {
  bool gathers = false;
  std::vector<std::string> sources;
  std::vector<std::pair<std::string, std::string>> headers;
};
struct Known {
  Gathered gathered;
  std::map<std::string, std::string> codes;                    // of gathered sources
  std::map<std::string, std::unique_ptr<HostKernel>> kernels;  // by their code
  int compiled = 0;
};
Guarded<Known, Rank::kAllocator>& known() {
  static auto* const all = new Guarded<Known, Rank::kAllocator>();  // threads may outlive statics
  return *all;
}

// The file of a source that is compiled, at the latest now.
std::string shared_object(const std::string& source,
                          const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string all = text(HEDDLE_DOUBLE_COMPILE, '\n', source);
  for (const auto& [name, words] : headers) all += text(name, '\n', words);
  const std::string path = text(HEDDLE_DOUBLE_CHAINS, '/', checksum(all), ".so");
  if (fs::exists(path)) return path;
  std::string folder = (fs::temp_directory_path() / "heddle-chain-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) stop("nvrtcCompileProgram", "there is no room for files");
  for (const auto& [name, words] : headers) {
    const bool ours = name.find('/') != std::string::npos;  // the host has the standard's itself
    if (ours && !replace_kept(text(folder, '/', name), words).ok())
      stop("nvrtcCompileProgram", "a header cannot be written");
  }
  const std::string made = folder + "/chain.so";
  if (!replace_kept(folder + "/chain.cpp", source).ok())
    stop("nvrtcCompileProgram", "the source cannot be written");
  const std::string command =
      text(HEDDLE_DOUBLE_COMPILE, " -I", folder, " -o ", made, ' ', folder, "/chain.cpp");
  if (std::system(command.c_str()) != 0) stop("nvrtcCompileProgram", command.c_str());
  const auto bytes = read_kept(made, uint64_t{1} << 30);
  if (!bytes.ok() || !bytes->has_value() || !replace_kept(path, **bytes).ok())
    stop("nvrtcCompileProgram", "what was compiled cannot be kept");
  fs::remove_all(folder);
  return path;
}

NvrtcCode create(cuda::NvrtcProgram* made, const char* source, const char*, int headers, const char** texts,
                 const char** names) {
  auto program = std::make_unique<Source>();
  program->text = source;
  for (int i = 0; i < headers; ++i) program->headers.emplace_back(names[i], texts[i]);
  *made = program.release();
  return cuda::kNvrtcSuccess;
}

NvrtcCode destroy(cuda::NvrtcProgram* program) {
  delete static_cast<Source*>(std::exchange(*program, nullptr));
  return cuda::kNvrtcSuccess;
}

NvrtcCode compile(cuda::NvrtcProgram handle, int count, const char** options) {
  auto& source = *static_cast<Source*>(handle);
  const std::vector<std::string> all(options, options + count);
  if (std::find(all.begin(), all.end(), kArchitecture) == all.end())
    stop("nvrtcCompileProgram", "it is not compiled for the GPU's architecture");
  for (const char* needed : {"--fmad=false", "-std=c++20"}) {
    if (std::find(all.begin(), all.end(), needed) == all.end()) return cuda::kNvrtcInvalidOption;
  }
  if (const NvrtcCode failed = fails(Call::kCompile); failed != 0) {
    source.log = "chain.cu(1): error: the double says no\nand more";
    source.log.push_back('\0');
    return failed;
  }
  {
    const auto now = known().lock();
    if (now->gathered.gathers) {
      now->gathered.headers = source.headers;
      auto& sources = now->gathered.sources;
      if (std::find(sources.begin(), sources.end(), source.text) == sources.end())
        sources.push_back(source.text);
      return cuda::kNvrtcOutOfMemory;
    }
    ++now->compiled;
    if (const auto found = now->codes.find(source.text); found != now->codes.end()) {
      source.code = found->second;
      return cuda::kNvrtcSuccess;
    }
  }
  source.code = text(kTitle, "heddle_chain ", shared_object(source.text, source.headers), '\n');
  return cuda::kNvrtcSuccess;
}

cuda::NvrtcApi make_nvrtc() {
  cuda::NvrtcApi api;
  api.version = [](int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return cuda::kNvrtcSuccess;
  };
  api.create = create;
  api.destroy = destroy;
  api.compile = compile;
  api.code_bytes = [](cuda::NvrtcProgram program, size_t* bytes) {
    return *bytes = static_cast<Source*>(program)->code.size(), cuda::kNvrtcSuccess;
  };
  api.code = [](cuda::NvrtcProgram program, char* to) {
    const std::string& code = static_cast<Source*>(program)->code;
    return std::memcpy(to, code.data(), code.size()), cuda::kNvrtcSuccess;
  };
  api.log_bytes = [](cuda::NvrtcProgram program, size_t* bytes) {
    return *bytes = static_cast<Source*>(program)->log.size(), cuda::kNvrtcSuccess;
  };
  api.log = [](cuda::NvrtcProgram program, char* to) {
    const std::string& log = static_cast<Source*>(program)->log;
    return std::memcpy(to, log.data(), log.size()), cuda::kNvrtcSuccess;
  };
  return api;
}

}  // namespace

const cuda::NvrtcApi& nvrtc() {
  static const cuda::NvrtcApi table = make_nvrtc();
  return table;
}

int compiled_so_far() { return known().lock()->compiled; }

GatheredChains::GatheredChains() { known().lock()->gathered = {true, {}, {}}; }
GatheredChains::~GatheredChains() { known().lock()->gathered = {}; }
std::vector<std::string> GatheredChains::sources() const { return known().lock()->gathered.sources; }

// One source of all, in which each has names of its own.
void GatheredChains::compile() {
  const Gathered gathered = std::exchange(known().lock()->gathered, {});
  if (gathered.sources.empty()) return;
  std::string all;
  for (size_t i = 0; i < gathered.sources.size(); ++i) {
    all += text("#define Body Body", i, "\n#define heddle_chain heddle_chain", i, '\n', gathered.sources[i],
                "#undef Body\n#undef heddle_chain\n");
  }
  const std::string file = shared_object(all, gathered.headers);
  const auto now = known().lock();
  for (size_t i = 0; i < gathered.sources.size(); ++i)
    now->codes[gathered.sources[i]] = text(kTitle, "heddle_chain", i, ' ', file, '\n');
}

const HostKernel* load_chain(const void* code) {
  const auto* const words = static_cast<const char*>(code);
  if (std::strncmp(words, kTitle.data(), kTitle.size()) != 0) return nullptr;
  const std::string line(words, std::strcspn(words, "\n"));
  const size_t space = line.find(' ', kTitle.size());
  const std::string symbol = line.substr(kTitle.size(), space - kTitle.size()), file = line.substr(space + 1);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* const chain =
      library == nullptr ? nullptr : static_cast<const cuda::HostChain*>(dlsym(library, symbol.c_str()));
  if (chain == nullptr) return nullptr;
  const auto now = known().lock();
  std::unique_ptr<HostKernel>& kernel = now->kernels[line];
  if (kernel == nullptr) {
    if (*chain->on_touch == nullptr) *chain->on_touch = cuda::on_touch_of_thread;  // of all in the file
    kernel.reset(new HostKernel{"heddle_chain", chain->params_bytes, chain->most_threads, 1, chain->run});
  }
  return kernel.get();
}

}  // namespace heddle::cuda_double
