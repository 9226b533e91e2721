#include "drivers/cuda/libraries/compiled_kernels.h"

#include "base/process_exit.h"

namespace heddle::cuda {
namespace {

Result<Nvrtc> nvrtc_for(const Result<NvrtcApi>& api, const OpenDevice& device) {
  if (!api.ok()) return api.status();
  return Nvrtc::make(*api, 10 * device.compute_major + device.compute_minor);
}

}  // namespace

CompiledKernels::CompiledKernels(const Result<NvrtcApi>& api, Ref<const OpenDevice> device,
                                 const LibraryTuning& tuning)
    : nvrtc_(nvrtc_for(api, *device)),
      device_(std::move(device)),
      files_(nvrtc_.ok() ? tuning.folder : "", nvrtc_.ok() ? nvrtc_->identity() : "", tuning.warn),
      trouble_(tuning.warn, "chains of element-wise operators are interpreted, which takes longer") {}

Result<CompiledKernels::Found> CompiledKernels::find(const char* name, const std::string& source,
                                                     size_t params_bytes) const {
  if (!nvrtc_.ok()) {
    trouble_.tell(nvrtc_.status());
    return Found{nullptr, "no NVRTC"};
  }
  const Result<Ref<const Compiled>> made =
      kernels_.get_or_make(source, [&] { return make(Kernel{name, params_bytes}, source); });
  HEDDLE_TRY(device_->lost.status());
  const Status& failed = made.ok() ? (*made)->refused : made.status();
  if (failed.ok()) return Found{&(*made)->kernel};
  trouble_.tell(failed);
  return Found{nullptr, failed.code() == heddle::Code::exhausted ? "no memory for a kernel" : "NVRTC failed"};
}

Result<Ref<const CompiledKernels::Compiled>> CompiledKernels::make(const Kernel& as,
                                                                   const std::string& source) const {
  if (kernels_.stats().count >= kMost)
    return Status::exhausted("there are ", kMost, " compiled kernels, and no more are made");
  auto made = std::make_shared<Compiled>(Compiled{as, {}});
  if (const std::optional<std::string> kept = files_.find(source); kept.has_value()) {
    const Status loaded = load(*kept, made->kernel);
    if (loaded.ok() || loaded.code() == heddle::Code::exhausted || !device_->lost.status().ok()) {
      HEDDLE_TRY(loaded);
      return Ref<const Compiled>(made);
    }
  }
  Result<std::string> code = nvrtc_->compile(source);
  renew_exit_handler();  // NVRTC may have made static objects
  if (code.ok()) {
    if (const Status loaded = load(*code, made->kernel); !loaded.ok()) code = loaded;
  }
  if (code.ok()) {
    files_.keep(source, *code);
    return Ref<const Compiled>(made);
  }
  // Memory, and a device that is gone, say nothing about the source.
  if (code.status().code() == heddle::Code::exhausted || !device_->lost.status().ok()) return code.status();
  made->refused = code.status();
  return Ref<const Compiled>(made);
}

Status CompiledKernels::load(const std::string& code, Kernel& kernel) const {
  const Current current(*device_);
  ModuleHandle module = nullptr;
  HEDDLE_TRY(device_->check(device_->api.module_load(&module, code.data()), "cuModuleLoadData of a chain"));
  const Code found = device_->api.module_function(&kernel.function, module, "heddle_chain");
  if (found != kSuccess) {
    device_->api.module_unload(module);
    return device_->check(found, "heddle_chain");
  }
  device_->modules.lock()->push_back(module);
  return {};
}

}  // namespace heddle::cuda
