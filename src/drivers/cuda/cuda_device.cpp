#include "drivers/cuda/cuda_device.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/thread.h"
#include "drivers/cuda/foreign_timeline.h"
#include "drivers/cuda/module.h"
#include "drivers/cuda/queue.h"
#include "drivers/cuda/waits.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

// With four the GPU always has a batch to begin (../shared probes: 64 callers and more).
constexpr int kLanes = 4;
constexpr int kQueueDepth = 32;
// 16 threads of PyTorch's eager MiniLM have 1.1 times the calls (docs/cuda.md).
constexpr int kRunsTogether = 8;

// CUDA's legacy default stream has a name, and is what others mean by null, as PyTorch does.
StreamHandle named(void* stream) {
  return stream == nullptr ? reinterpret_cast<StreamHandle>(uintptr_t{1}) : stream;
}

std::string version(int number) { return text(number / 1000, ".", number % 1000 / 10); }

// Lower ones allow libraries to round the factors of products; without them nothing is faster than f32. cuDNN
// has TF32 in the place of bf16, which rounds less.
struct Precision {
  const char* name;
  int compute, math;  // cublasComputeType_t, cudnnMathType_t
  int oldest;         // compute capability that has the arithmetic
};
constexpr Precision kPrecisions[] = {{"f32", kBlasComputeF32, kCudnnFmaMath, 0},
                                     {"tf32", kBlasComputeTF32, kCudnnDefaultMath, 80},
                                     {"bf16", kBlasComputeBF16, kCudnnDefaultMath, 80},
                                     {"f16", kBlasComputeF16, kCudnnConvertingMath, 70}};

const Precision& precision_of(std::string_view name) {
  return *std::find_if(std::begin(kPrecisions), std::end(kPrecisions),
                       [&](const Precision& each) { return each.name == name; });
}

std::string described_graphs(const CudaOptions& options) {
  if (options.graph_bytes == 0) return "off";
  const char* calls = options.capture_beside_others ? ", also beside others that use CUDA"
                      : options.others_use_cuda() ? ", none with a library's calls: CUDA's runtime is loaded"
                                                  : "";
  return text("up to ", options.graph_bytes >> 20, " MiB", calls);
}

template <class Library>
struct Found {
  Ref<const Library> library;
  std::string file;  // "": a table that a test gave
};

template <class Library>
std::string described(const Result<Found<Library>>& found) {
  if (!found.ok()) return text("none: ", found.status().message());
  return text(found->library->version(), found->file.empty() ? "" : ", ", found->file);
}

// Of chains; null: they are not to be compiled.
struct ChainCompiler {
  Ref<const CompiledKernels> kernels;
  std::string file;  // "": none, or a table that a test gave
};

void add_facts(const ChainCompiler& compiler, std::vector<device::Fact>& facts) {
  if (compiler.kernels == nullptr) {
    facts.push_back({"NVRTC", "off"});
    return;
  }
  const Result<Nvrtc>& nvrtc = compiler.kernels->nvrtc();
  facts.push_back({"NVRTC", !nvrtc.ok()             ? text("none: ", nvrtc.status().message())
                            : compiler.file.empty() ? nvrtc->version()
                                                    : text(nvrtc->version(), ", ", compiler.file)});
  if (nvrtc.ok()) facts.push_back({"NVRTC's kernels", compiler.kernels->describe_files()});
}

Ref<Graphs> make_graphs(const Ref<const OpenDevice>& open, const CudaOptions& options) {
  if (options.graph_bytes == 0) return nullptr;
  const auto nobody = []() { return false; };
  return std::make_shared<Graphs>(open, options.graph_bytes,
                                  options.capture_beside_others ? nobody : options.others_use_cuda);
}

class CudaDevice final : public device::Device {
 public:
  CudaDevice(Ref<const OpenDevice> open, const Result<Found<BlasLt>>& blas, const Result<Found<Cudnn>>& cudnn,
             const ChainCompiler& compiler, const CudaOptions& options)
      : open_(std::move(open)),
        blas_(blas.ok() ? blas->library : nullptr),
        cudnn_(cudnn.ok() ? cudnn->library : nullptr),
        chains_(compiler.kernels),
        graphs_(make_graphs(open_, options)),
        watcher_(std::make_shared<Watcher>(options.lookers)),
        warn_(options.tuning.warn) {
    const int ordinal = options.ordinal;
    traits_.name = ordinal == 0 ? "cuda" : text("cuda:", ordinal);
    traits_.description = text(open_->name, ", ", open_->memory_bytes >> 20, " MiB");
    traits_.lanes = kLanes;
    traits_.queue_depth = kQueueDepth;
    traits_.runs_together = kRunsTogether;
    traits_.row_sizes = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    traits_.memory_bytes = open_->memory_bytes;
    traits_.events = "cudaEvent_t";
    const int capability = 10 * open_->compute_major + open_->compute_minor;
    for (const Precision& each : kPrecisions) {
      if (blas_ != nullptr && each.compute != kBlasComputeF32 && each.oldest <= capability)
        traits_.precisions.emplace_back(each.name);
    }
    traits_.facts = {
        {"GPU", text(ordinal, ": ", open_->name)},
        {"compute capability", text(open_->compute_major, ".", open_->compute_minor)},
        {"multiprocessors", text(open_->multiprocessors)},
        {"CUDA of the driver", version(open_->driver_version)},
        {"cuBLASLt", described(blas)},
        {"cuDNN", described(cudnn)},
        {"graphs", described_graphs(options)},
    };
    if (blas_ != nullptr) traits_.facts.push_back({"cuBLASLt's algorithms", blas_->describe_choices()});
    if (cudnn_ != nullptr) traits_.facts.push_back({"cuDNN's algorithms", cudnn_->describe_choices()});
    add_facts(compiler, traits_.facts);
  }
  ~CudaDevice() override {
    if (open_->is_ours()) watcher_->stop();
  }
  Status start() {
    HEDDLE_TRY_ASSIGN(thread_, Thread::start("heddle-cuda", [watcher = watcher_] { watcher->run(); }));
    return {};
  }

  const device::Traits& traits() const override { return traits_; }
  const void* maker() const override { return open_.get(); }
  Status lost() const override { return open_->lost.status(); }

  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind kind,
                                                   NoLocksHeld) override {
    HEDDLE_TRY(lost());
    return cuda::allocate(open_, bytes, kind);
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override {
    HEDDLE_TRY(lost());
    return CudaQueue::make(open_, graphs_, watcher_);
  }
  Result<device::Point> import_event(const device::ForeignEvent& event, NoLocksHeld) override {
    if (event.handle == nullptr) return Status::invalid("there is no event to wait for");
    return device::Point{std::make_shared<ForeignTimeline>(open_, event, watcher_, CudaQueue::key()), 1};
  }
  Result<std::unique_ptr<device::Memory>> import_memory(const device::ForeignMemory& memory,
                                                        NoLocksHeld) override {
    HEDDLE_TRY(lost());
    return cuda::import_memory(open_, memory);
  }
  Result<device::Point> import_stream(void* stream, NoLocksHeld none) override {
    const Current current(*open_);
    EventHandle event = nullptr;
    HEDDLE_TRY(open_->check(open_->api.event_create(&event, kEventWithoutTiming), "cuEventCreate"));
    const Ref<const void> keep(event, [open = open_, event](const void*) {
      if (!open->is_ours()) return;
      const Current inner(*open);
      open->api.event_destroy(event);
    });
    HEDDLE_TRY(
        open_->check(open_->api.event_record(event, named(stream)), "cuEventRecord on a foreign stream"));
    return import_event({event, 0, keep}, none);
  }
  Status hold_stream(void* stream, const device::Point& point, NoLocksHeld) override {
    HEDDLE_TRY(until_enqueued(point));
    const Current current(*open_);
    return hold(*open_, named(stream), point);
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions& options,
                                                Ref<device::Source> source, NoLocksHeld) override {
    HEDDLE_TRY(lost());
    if (options.exact && options.precision != "f32") {
      return Status::invalid("an exact model computes in precision f32, not '", options.precision, "'");
    }
    HEDDLE_TRY_ASSIGN(Ref<const Weights> weights, Weights::make(open_, *prepared.graph, nullptr, *source));
    Libraries libraries;
    if (!options.exact) {
      const Precision& precision = precision_of(options.precision);
      libraries = {blas_, cudnn_, precision.compute, precision.math, nullptr, false};
      if (cudnn_ != nullptr) {
        if (const Status prepared_it = prepare_convolutions(*prepared.graph); !prepared_it.ok()) {
          HEDDLE_TRY(lost());
          warn_(text("kernels of ours compute the convolutions of this model: ", prepared_it.message()));
          libraries.cudnn = nullptr;
        }
      }
    }
    libraries.chains = chains_;
    return Ref<const device::Module>(std::make_shared<CudaModule>(
        std::move(prepared), std::move(weights), open_, libraries, std::move(source), graphs_));
  }

 private:
  const Ref<const OpenDevice> open_;
  // cuDNN's libraries are large: they are loaded for models that have use for them.
  Status prepare_convolutions(const ir::Graph& graph) const {
    for (const ir::Node& node : graph.nodes) {
      for (const auto& [name, attribute] : node.attributes) {
        if (const auto inner = node.attributes.graph(name)) HEDDLE_TRY(prepare_convolutions(*inner));
      }
      if (node.op->name != "Conv") continue;
      const ir::DType dtype = graph.type(node.inputs[0]).dtype;
      if (computed_in(dtype) == "_f32") HEDDLE_TRY(cudnn_->compute_once(dtype));
    }
    return {};
  }

  const Ref<const BlasLt> blas_;  // null: its fact says why
  const Ref<const Cudnn> cudnn_;  // likewise
  const Ref<const CompiledKernels> chains_;
  const Ref<Graphs> graphs_;  // null: they are switched off
  device::Traits traits_;
  const Ref<Watcher> watcher_;
  const std::function<void(const std::string&)> warn_;
  Thread thread_;
};

Result<std::string> read_image(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (!file || bytes.empty()) return Status::invalid("no kernels for GPUs can be read from '", path, "'");
  return bytes;
}

Result<FoundLibrary> find_in(const CudaOptions& options, std::span<const char* const> names) {
  if (options.api != nullptr) return Status::unavailable("the driver is not NVIDIA's");
  std::vector<std::string> folders = options.library_folders;
  for (std::string& each : wheel_folders()) folders.push_back(std::move(each));
  return find_library(names, folders);
}

template <class Api>
std::string file_with(const Api& api) {
  return file_of(reinterpret_cast<const void*>(api.version));
}

Result<Found<BlasLt>> find_blas_lt(const CudaOptions& options, const Ref<const OpenDevice>& open) {
  Found<BlasLt> found;
  BlasLtApi api;
  if (options.blas != nullptr) {
    api = *options.blas;
  } else {
    HEDDLE_TRY_ASSIGN(const FoundLibrary library, find_in(options, kBlasLtNames));
    HEDDLE_TRY_ASSIGN(api, load_blas_lt(library));
    found.file = file_with(api);
  }
  HEDDLE_TRY_ASSIGN(found.library, BlasLt::make(api, open, options.tuning));
  return found;
}

Result<Found<Cudnn>> find_cudnn(const CudaOptions& options, const Ref<const OpenDevice>& open) {
  Found<Cudnn> found;
  CudnnApi api;
  if (options.cudnn != nullptr) {
    api = *options.cudnn;
  } else {
    HEDDLE_TRY_ASSIGN(const FoundLibrary library, find_in(options, kCudnnNames));
    HEDDLE_TRY_ASSIGN(api, load_cudnn(library));
    found.file = file_with(api);
  }
  found.library = Cudnn::make(api, open, options.tuning);
  return found;
}

ChainCompiler make_compiler(const CudaOptions& options, const Ref<const OpenDevice>& open) {
  if (!options.compiles_chains) return {};
  ChainCompiler compiler;
  const auto find = [&]() -> Result<NvrtcApi> {
    if (options.nvrtc != nullptr) return *options.nvrtc;
    HEDDLE_TRY_ASSIGN(const FoundLibrary library, find_in(options, kNvrtcNames));
    HEDDLE_TRY_ASSIGN(const NvrtcApi api, load_nvrtc(library));
    compiler.file = file_with(api);
    return api;
  };
  compiler.kernels = std::make_shared<CompiledKernels>(find(), open, options.tuning);
  return compiler;
}

}  // namespace

Status check_installed(const CudaOptions& options) {
  if (options.image == nullptr && options.image_file.empty() && built_in_image() == nullptr) {
    return Status::unavailable(
        "this build of Heddle has no kernels for GPUs: it was made without nvcc. "
        "Configure with -DHEDDLE_NVCC=/usr/local/cuda/bin/nvcc, or name a file of kernels in "
        "HEDDLE_CUDA_IMAGE");
  }
  return options.api != nullptr ? Status() : nvidia_driver().status();
}

Result<int> count_devices(const CudaOptions& options) {
  HEDDLE_TRY(check_installed(options));
  return OpenDevice::count(options.api != nullptr ? *options.api : **nvidia_driver());
}

Result<Ref<device::Device>> make_cuda_device(const CudaOptions& options) {
  HEDDLE_TRY(check_installed(options));
  const void* image = options.image != nullptr ? options.image : built_in_image();
  std::string read;
  if (!options.image_file.empty()) {
    HEDDLE_TRY_ASSIGN(read, read_image(options.image_file));
    image = read.data();
  }
  const DriverApi& api = options.api != nullptr ? *options.api : **nvidia_driver();
  HEDDLE_TRY_ASSIGN(Ref<const OpenDevice> open, OpenDevice::open(api, options.ordinal, image));
  auto device = std::make_shared<CudaDevice>(open, find_blas_lt(options, open), find_cudnn(options, open),
                                             make_compiler(options, open), options);
  HEDDLE_TRY(device->start());
  return Ref<device::Device>(std::move(device));
}

}  // namespace heddle::cuda
