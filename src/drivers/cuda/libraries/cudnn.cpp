#include "drivers/cuda/libraries/cudnn.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/process_exit.h"
#include "drivers/cuda/libraries/alike.h"
#include "drivers/cuda/memory.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kAlign = 16;  // bytes, of each operand

int type_of_cudnn(ir::DType dtype) {
  return dtype == ir::DType::kF16 ? kCudnnF16 : dtype == ir::DType::kBF16 ? kCudnnBF16 : kCudnnF32;
}

int64_t product_of(const ConvolutionProblem::Axes& axes) {
  return std::accumulate(axes.begin(), axes.end(), int64_t{1}, std::multiplies<>());
}

// Codes come in thousands, with more words in the lower digits.
bool cannot(CudnnCode code) {
  return code / 1000 == kCudnnBadParameter / 1000 || code / 1000 == kCudnnNotSupported / 1000;
}

// cuDNN knows planes of two axes and of three.
size_t skipped_axes(const ConvolutionProblem& p) {
  return p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1 && p.padding[0] == 0 ? 1 : 0;
}

// What is measured with, one behind another; a residual is what the output was.
ConvolutionOperands operands_at(const ConvolutionProblem& p, uint64_t address) {
  constexpr uint64_t kPlaceAlign = 256;
  const auto place = [&](int64_t elements) {
    const uint64_t at = address;
    const auto size = static_cast<uint64_t>(elements * ir::size_of(p.dtype));
    address += (size + kPlaceAlign - 1) / kPlaceAlign * kPlaceAlign;
    return at;
  };
  ConvolutionOperands operands;
  operands.x = place(int64_t{p.images} * p.channels * product_of(p.in));
  operands.w = place(int64_t{p.out_channels} * (p.channels / p.groups) * product_of(p.kernel));
  operands.out = operands.residual = place(int64_t{p.images} * p.out_channels * product_of(p.out));
  operands.bias = place(p.out_channels);
  operands.workspace = address;
  return operands;
}

uint64_t bytes_of(const ConvolutionProblem& p) { return operands_at(p, 0).workspace; }

size_t place_of(StreamHandle stream) {
  return (reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15u) >> 58;  // the upper bits: 64 places
}

// The problem with the most images of those that are measured with this one, if an int counts its elements.
ConvolutionProblem alike(ConvolutionProblem problem) {
  const int64_t most = most_alike(problem.images);
  const int64_t image =
      std::max(problem.channels * product_of(problem.in), problem.out_channels * product_of(problem.out));
  if (most * image <= INT32_MAX) problem.images = static_cast<int>(most);
  return problem;
}

std::string name_of(const ConvolutionProblem& p) {
  std::string name = text("convolution ", ir::name(p.dtype), " math ", p.math, " of ", p.images, ' ',
                          p.channels, ' ', p.out_channels, ' ', p.groups, p.bias ? " bias" : " none",
                          p.residual ? " residual" : " none", p.relu ? " relu" : " none");
  const std::pair<const char*, const ConvolutionProblem::Axes*> all[] = {{" in", &p.in},
                                                                         {" out", &p.out},
                                                                         {" kernel", &p.kernel},
                                                                         {" strides", &p.strides},
                                                                         {" dilations", &p.dilations},
                                                                         {" padding", &p.padding}};
  for (const auto& [word, axes] : all) {
    name += word;
    for (const int each : *axes) name += text(' ', each);
  }
  if (p.channels_last) name += " channels last";
  return name;
}

}  // namespace

// ---- a convolution

Status CudnnConvolution::describe_tensor(CudnnTensor& made, int images, int channels,
                                         const ConvolutionProblem::Axes& plane, bool channels_last) {
  const CudnnApi& api = library_->api_;
  HEDDLE_TRY(library_->check(api.tensor_create(&made), "cudnnCreateTensorDescriptor"));
  std::vector<int> extents{images, channels};
  extents.insert(extents.end(), plane.begin() + skipped_axes(problem_), plane.end());
  std::vector<int> strides(extents.size(), 1);
  int next = channels_last ? channels : 1;
  for (size_t axis = extents.size(); axis-- > 2; next *= extents[axis]) strides[axis] = next;
  if (!channels_last) strides[1] = std::exchange(next, next * channels);
  strides[0] = next;
  return library_->check(api.tensor_set(made, type_of_cudnn(problem_.dtype), static_cast<int>(extents.size()),
                                        extents.data(), strides.data()),
                         "cudnnSetTensorNdDescriptor");
}

Status CudnnConvolution::describe() {
  const CudnnApi& api = library_->api_;
  const ConvolutionProblem& p = problem_;
  const auto check = [&](CudnnCode code, std::string_view what) { return library_->check(code, what); };
  HEDDLE_TRY(describe_tensor(x_, p.images, p.channels, p.in, p.channels_last));
  HEDDLE_TRY(describe_tensor(out_, p.images, p.out_channels, p.out, p.channels_last));
  HEDDLE_TRY(describe_tensor(bias_, 1, p.out_channels, {1, 1, 1}, false));  // its bytes are the same
  const size_t skipped = skipped_axes(p);
  std::vector<int> w{p.out_channels, p.channels / p.groups};
  w.insert(w.end(), p.kernel.begin() + skipped, p.kernel.end());
  HEDDLE_TRY(check(api.filter_create(&w_), "cudnnCreateFilterDescriptor"));
  HEDDLE_TRY(check(api.filter_set(w_, type_of_cudnn(p.dtype), p.channels_last ? kCudnnNHWC : kCudnnNCHW,
                                  static_cast<int>(w.size()), w.data()),
                   "cudnnSetFilterNdDescriptor"));
  HEDDLE_TRY(check(api.window_create(&window_), "cudnnCreateConvolutionDescriptor"));
  HEDDLE_TRY(check(api.window_set(window_, static_cast<int>(ConvolutionProblem::kAxes - skipped),
                                  p.padding.data() + skipped, p.strides.data() + skipped,
                                  p.dilations.data() + skipped, kCudnnCrossCorrelation, kCudnnF32),
                   "cudnnSetConvolutionNdDescriptor"));
  HEDDLE_TRY(check(api.window_set_groups(window_, p.groups), "cudnnSetConvolutionGroupCount"));
  HEDDLE_TRY(check(api.window_set_math(window_, p.dtype == ir::DType::kF32 ? p.math : kCudnnTensorMath),
                   "cudnnSetConvolutionMathType"));
  HEDDLE_TRY(check(api.activation_create(&activation_), "cudnnCreateActivationDescriptor"));
  return check(api.activation_set(activation_, p.relu ? kCudnnRelu : kCudnnIdentity, kCudnnPropagateNan, 0),
               "cudnnSetActivationDescriptor");
}

CudnnConvolution::~CudnnConvolution() {
  const CudnnApi& api = library_->api_;
  for (CudnnTensor each : {x_, out_, bias_}) {
    if (each != nullptr) api.tensor_destroy(each);
  }
  if (w_ != nullptr) api.filter_destroy(w_);
  if (window_ != nullptr) api.window_destroy(window_);
  if (activation_ != nullptr) api.activation_destroy(activation_);
}

bool CudnnConvolution::takes(const void* operands) const {
  const ConvolutionOperands o = operands_of<ConvolutionOperands>(operands);
  return (o.x | o.w | o.out | o.bias | o.residual) % kAlign == 0;
}

Result<std::vector<CudnnConvolution::Algorithm>> CudnnConvolution::able(CudnnHandle handle) const {
  std::vector<Algorithm> found;
  for (const int number : {kCudnnPrecomputedGemm, kCudnnImplicitGemm}) {
    // Without an activation cuDNN adds a bias in this one alone.
    if (problem_.bias && !problem_.relu && number != kCudnnPrecomputedGemm) continue;
    size_t bytes = 0;
    const CudnnCode code = library_->api_.workspace_of(handle, x_, w_, window_, out_, number, &bytes);
    if (cannot(code)) continue;
    HEDDLE_TRY(library_->check(code, "cudnnGetConvolutionForwardWorkspaceSize"));
    if (bytes <= kMostWorkspaceBytes) found.push_back({number, bytes});
  }
  return found;
}

CudnnCode CudnnConvolution::enqueue(CudnnHandle handle, const ConvolutionOperands& operands,
                                    const Algorithm& by) const {
  constexpr float kOne = 1, kZero = 0;
  const CudnnApi& api = library_->api_;
  if (!problem_.bias) {
    return api.convolve(handle, &kOne, x_, pointer_to(operands.x), w_, pointer_to(operands.w), window_,
                        by.number, pointer_to(operands.workspace), by.workspace_bytes, &kZero, out_,
                        pointer_to(operands.out));
  }
  const uint64_t added = problem_.residual ? operands.residual : operands.out;
  return api.convolve_and_finish(handle, &kOne, x_, pointer_to(operands.x), w_, pointer_to(operands.w),
                                 window_, by.number, pointer_to(operands.workspace), by.workspace_bytes,
                                 problem_.residual ? &kOne : &kZero, out_, pointer_to(added), bias_,
                                 pointer_to(operands.bias), activation_, out_, pointer_to(operands.out));
}

Status CudnnConvolution::run(const void* operands, StreamHandle stream) const {
  HEDDLE_TRY_ASSIGN(const CudnnHandle handle, library_->take_handle(stream));
  const Cudnn::Lent lent(*library_, handle, stream);
  return library_->check(enqueue(handle, operands_of<ConvolutionOperands>(operands), chosen_),
                         "cudnnConvolutionForward");
}

// ---- the library

Ref<const Cudnn> Cudnn::make(const CudnnApi& api, Ref<const OpenDevice> device, const LibraryTuning& tuning) {
  return Ref<const Cudnn>(new Cudnn(api, std::move(device), tuning));
}

Cudnn::~Cudnn() {
  if (!device_->is_ours()) return;
  const Current current(*device_);
  for (Place& each : idle_) {
    if (CudnnHandle handle = each.handle.load_acquire(); handle != nullptr) api_.destroy(handle);
  }
}

std::string Cudnn::version() const {
  const size_t number = api_.version();
  return text(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

std::string Cudnn::describe_choices() const { return choices_.describe("cuDNN wherever it can"); }

Status Cudnn::check(CudnnCode code, std::string_view what) const {
  if (code == kCudnnSuccess) [[likely]]
    return {};
  return Status::internal("cuDNN ", version(), ": ", what, " says ", api_.error_text(code));
}

Result<CudnnHandle> Cudnn::take_handle(StreamHandle stream) const {
  const size_t own = place_of(stream);
  CudnnHandle handle = nullptr;
  for (size_t i = 0; i < kPlaces && handle == nullptr; ++i) {
    Atomic<CudnnHandle>& place = idle_[(own + i) % kPlaces].handle;
    if (place.load_relaxed() != nullptr) handle = place.exchange_acq_rel(nullptr);
  }
  if (handle == nullptr) HEDDLE_TRY(check(api_.create(&handle), "cudnnCreate"));
  if (const Status set = check(api_.set_stream(handle, stream), "cudnnSetStream"); !set.ok()) {
    api_.destroy(handle);
    return set;
  }
  return handle;
}

void Cudnn::give_back(CudnnHandle handle, StreamHandle stream) const {
  const size_t own = place_of(stream);
  for (size_t i = 0; i < kPlaces; ++i) {
    CudnnHandle none = nullptr;
    if (idle_[(own + i) % kPlaces].handle.cas_strong_acq_rel(none, handle)) return;
  }
  api_.destroy(handle);
}

Status Cudnn::compute_once(ir::DType dtype) const {
  const auto once = [&]() -> Result<Ref<const bool>> {
    HEDDLE_TRY(compute(dtype));
    renew_exit_handler();
    return std::make_shared<const bool>(true);
  };
  return computed_.get_or_make(static_cast<int>(dtype), once).status();
}

Status Cudnn::compute(ir::DType dtype) const {
  constexpr int kChannels = 32, kExtent = 8;
  ConvolutionProblem problem;
  problem.dtype = dtype;
  problem.channels = problem.out_channels = kChannels;
  problem.in = problem.out = {1, kExtent, kExtent};
  problem.kernel = {1, 3, 3};
  problem.padding = {0, 1, 1};
  problem.bias = problem.relu = true;
  const Current current(*device_);
  CudnnConvolution convolution(shared_from_this(), problem);
  HEDDLE_TRY(convolution.describe());
  HEDDLE_TRY_ASSIGN(const CudnnHandle handle, take_handle(device_->stream));
  const Lent lent(*this, handle, device_->stream);
  HEDDLE_TRY_ASSIGN(const std::vector<CudnnConvolution::Algorithm> able, convolution.able(handle));
  if (able.empty()) return Status::unsupported("cuDNN ", version(), " convolves no ", dtype);
  const uint64_t bytes = bytes_of(problem) + able.front().workspace_bytes;
  HEDDLE_TRY_ASSIGN(const std::unique_ptr<device::Memory> memory,
                    allocate(device_, bytes, device::MemoryKind::device));
  const Settled settled(*device_);
  HEDDLE_TRY(clear(*device_, memory->address(), bytes_of(problem)));
  const ConvolutionOperands operands = operands_at(problem, memory->address());
  HEDDLE_TRY(check(convolution.enqueue(handle, operands, able.front()), "cudnnConvolutionForward"));
  return device_->check(device_->api.stream_synchronize(device_->stream), "the first convolution of cuDNN");
}

Result<Ref<const CudnnConvolution>> Cudnn::convolution(const ConvolutionProblem& problem,
                                                       const ConvolutionRivals& rivals,
                                                       device::Source& source) const {
  Result<Ref<const CudnnConvolution>> made = make_convolution(problem, rivals, source);
  if (made.ok() || !device_->lost.status().ok()) return made;
  trouble_.tell(made.status());
  return Ref<const CudnnConvolution>();
}

Result<std::shared_ptr<CudnnConvolution>> Cudnn::described(const ConvolutionProblem& problem) const {
  const std::shared_ptr<CudnnConvolution> made(new CudnnConvolution(shared_from_this(), problem));
  HEDDLE_TRY(made->describe());
  return made;
}

Result<Ref<const CudnnConvolution>> Cudnn::make_convolution(const ConvolutionProblem& problem,
                                                            const ConvolutionRivals& rivals,
                                                            device::Source& source) const {
  const Current current(*device_);
  HEDDLE_TRY_ASSIGN(const std::shared_ptr<CudnnConvolution> made, described(problem));
  const auto choose_for = [&](const ConvolutionProblem& of) -> Result<Chosen> {
    if (of == problem) return choose(*made, rivals, source);
    HEDDLE_TRY_ASSIGN(const std::shared_ptr<CudnnConvolution> other, described(of));
    return choose(*other, rivals, source);
  };
  // With the workspace that this one needs.
  using Algorithm = CudnnConvolution::Algorithm;
  const auto fit = [&](const Algorithm& by) -> Result<std::optional<Algorithm>> {
    HEDDLE_TRY_ASSIGN(const CudnnHandle handle, take_handle(device_->stream));
    const Lent lent(*this, handle, device_->stream);
    HEDDLE_TRY_ASSIGN(const std::vector<Algorithm> able, made->able(handle));
    const auto found = std::ranges::find(able, by.number, &Algorithm::number);
    return found == able.end() ? std::optional<Algorithm>() : std::optional(*found);
  };
  const Result<Chosen> choice = choices_.choose_alike(problem, alike(problem), choose_for, fit);
  // Without memory to measure with kernels of ours compute.
  if (choice.status().code() == heddle::Code::exhausted) return Ref<const CudnnConvolution>();
  HEDDLE_TRY(choice.status());
  if (!choice->algorithm.has_value()) return Ref<const CudnnConvolution>();
  made->chosen_ = *choice->algorithm;
  return Ref<const CudnnConvolution>(made);
}

// ---- the choice

// Of a convolution, for ChosenOnce.
class Cudnn::Asked {
 public:
  Asked(const CudnnConvolution& convolution, const ConvolutionRivals& rivals, device::Source& source)
      : convolution_(convolution),
        library_(*convolution.library_),
        device_(*library_.device_),
        rival_(rivals(convolution.problem_.images)),
        source_(source) {}

  std::string name() const { return name_of(convolution_.problem_); }
  Result<Choices::Ways> ways() {
    HEDDLE_TRY_ASSIGN(handle_, library_.take_handle(device_.stream));
    lent_.emplace(library_, handle_, device_.stream);
    HEDDLE_TRY_ASSIGN(const std::vector<CudnnConvolution::Algorithm> able, convolution_.able(handle_));
    Choices::Ways ways;
    for (const CudnnConvolution::Algorithm& each : able)
      ways.push_back({text(each.number), each, each.workspace_bytes});
    if (rival_.whole)
      ways.push_back({.word = AlgorithmStore::kOurs, .workspace_bytes = rival_.workspace_bytes});
    return ways;
  }
  Result<Chosen> unmeasured(Choices::Ways ways) {
    HEDDLE_TRY(prepare(ways));
    return ways.empty() || !ways.front().algorithm.has_value() ? Chosen() : ways.front();
  }
  Result<std::vector<float>> time(Choices::Ways& ways) {
    HEDDLE_TRY(prepare(ways));
    return time_each(device_, ways, [&](const Chosen& way) {
      if (!way.algorithm.has_value()) return rival_.whole(operands_, device_.stream);
      return library_.check(convolution_.enqueue(handle_, operands_, *way.algorithm), kWhat);
    });
  }

 private:
  static constexpr const char* kWhat = "cudnnConvolutionForward";
  // Makes the operands, and leaves out what cuDNN refuses.
  Status prepare(Choices::Ways& ways) {
    uint64_t workspace = 0;
    for (const Chosen& each : ways) workspace = std::max(workspace, each.workspace_bytes);
    const uint64_t bytes = bytes_of(convolution_.problem_);
    HEDDLE_TRY_ASSIGN(memory_, source_.allocate(bytes + workspace));
    settled_.emplace(device_);
    HEDDLE_TRY(clear(device_, memory_->address(), bytes));
    operands_ = operands_at(convolution_.problem_, memory_->address());
    HEDDLE_TRY(leave_out_refused(ways, [&](const CudnnConvolution::Algorithm& by) -> Result<bool> {
      const CudnnCode code = convolution_.enqueue(handle_, operands_, by);
      if (cannot(code)) return false;
      HEDDLE_TRY(library_.check(code, kWhat));
      return true;
    }));
    return device_.check(device_.api.stream_synchronize(device_.stream), "a convolution of cuDNN");
  }

  const CudnnConvolution& convolution_;
  const Cudnn& library_;
  const OpenDevice& device_;
  const Rival<ConvolutionOperands> rival_;
  device::Source& source_;
  CudnnHandle handle_ = nullptr;
  std::optional<Lent> lent_;
  Ref<device::Buffer> memory_;
  std::optional<Settled> settled_;  // behind the memory
  ConvolutionOperands operands_;
};

Result<Cudnn::Chosen> Cudnn::choose(const CudnnConvolution& convolution, const ConvolutionRivals& rivals,
                                    device::Source& source) const {
  return choices_.choose(convolution.problem_, Asked(convolution, rivals, source));
}

size_t Cudnn::Hash::operator()(const ConvolutionProblem& p) const {
  uint64_t hash = static_cast<uint64_t>(p.dtype) * 64 + static_cast<uint64_t>(p.math) * 8 + (p.bias ? 4 : 0) +
                  (p.residual ? 2 : 0) + p.relu + (p.channels_last ? 32 : 0);
  const auto mix = [&](int each) { hash = (hash ^ static_cast<uint64_t>(each)) * 0x9e3779b97f4a7c15u; };
  for (const int each : {p.images, p.channels, p.out_channels, p.groups}) mix(each);
  for (const auto* axes : {&p.in, &p.out, &p.kernel, &p.strides, &p.dilations, &p.padding}) {
    for (const int each : *axes) mix(each);
  }
  return hash;
}

}  // namespace heddle::cuda
