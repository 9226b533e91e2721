#include "drivers/cuda/libraries/nvrtc.h"

#include <vector>

#include "base/kept_file.h"
#include "drivers/cuda/libraries/kernel_headers.h"

namespace heddle::cuda {
namespace {

// As nvcc is told of the kernels that are compiled ahead of time (cmake/HeddleCuda.cmake). What is not marked
// as the GPU's, lambdas above all, is the GPU's.
constexpr const char* kNvrtcOptions[] = {"--fmad=false", "-std=c++20", "-default-device"};

class SourceProgram {
 public:
  explicit SourceProgram(const NvrtcApi& api) : api_(api) {}
  ~SourceProgram() {
    if (made_ != nullptr) api_.destroy(&made_);
  }
  SourceProgram(const SourceProgram&) = delete;
  SourceProgram& operator=(const SourceProgram&) = delete;

  NvrtcCode make(const std::string& source) {
    std::vector<const char*> texts, names;
    for (const KernelHeader& each : kernel_headers()) {
      texts.push_back(each.text.data());
      names.push_back(each.name);
    }
    return api_.create(&made_, source.c_str(), "heddle_chain.cu", static_cast<int>(names.size()),
                       texts.data(), names.data());
  }
  NvrtcProgram get() const { return made_; }

 private:
  const NvrtcApi& api_;
  NvrtcProgram made_ = nullptr;
};

}  // namespace

Result<Nvrtc> Nvrtc::make(const NvrtcApi& api, int capability) {
  int major = 0, minor = 0;
  if (const NvrtcCode code = api.version(&major, &minor); code != kNvrtcSuccess)
    return Status::unavailable("nvrtcVersion returned status ", code);
  return Nvrtc(api, capability, text(major, '.', minor));
}

std::string Nvrtc::identity() const {
  std::string headers;
  for (const KernelHeader& each : kernel_headers()) headers += text(each.name, '\n', each.text, '\n');
  std::string all = text("NVRTC ", version_, ' ', architecture_);
  for (const char* each : kNvrtcOptions) all += text(' ', each);
  return all + text("; headers ", checksum(headers));
}

Status Nvrtc::check(NvrtcCode code, std::string_view what) const {
  if (code == kNvrtcSuccess) return {};
  const std::string said = text("NVRTC ", version_, ": ", what, " returned status ", code);
  return code == kNvrtcOutOfMemory ? Status::exhausted(said) : Status::internal(said);
}

std::string Nvrtc::first_of_log(NvrtcProgram program) const {
  size_t bytes = 0;
  if (api_.log_bytes(program, &bytes) != kNvrtcSuccess || bytes <= 1) return "";
  std::string log(bytes, '\0');
  if (api_.log(program, log.data()) != kNvrtcSuccess) return "";
  return text(": ", std::string_view(log.c_str()).substr(0, log.find('\n')));
}

Result<std::string> Nvrtc::compile(const std::string& source) const {
  SourceProgram program(api_);
  HEDDLE_TRY(check(program.make(source), "nvrtcCreateProgram"));
  std::vector<const char*> options{architecture_.c_str()};
  options.insert(options.end(), std::begin(kNvrtcOptions), std::end(kNvrtcOptions));
  const NvrtcCode compiled = api_.compile(program.get(), static_cast<int>(options.size()), options.data());
  if (const Status failed = check(compiled, "nvrtcCompileProgram"); !failed.ok())
    return Status::make(failed.code(), text(failed.message(), first_of_log(program.get())));
  size_t bytes = 0;
  HEDDLE_TRY(check(api_.code_bytes(program.get(), &bytes), "nvrtcGetCUBINSize"));
  std::string code(bytes, '\0');
  HEDDLE_TRY(check(api_.code(program.get(), code.data()), "nvrtcGetCUBIN"));
  return code;
}

}  // namespace heddle::cuda
