// cudnn.h: convolutions by cuDNN on one device.
//
//   What       convolution() makes a CudnnConvolution, which a run enqueues into its stream. Of cuDNN's
//              algorithms without a transform and our own kernels the best is taken, once per problem and
//              device (chosen_once.h).
//   Numbers    Sums are of f32. Factors of f32 are rounded only as a problem's `math` allows. Bits depend on
//              the number of images: `exact` models do without.
//   Handles    cuDNN's are used by one thread at a time: each run lends one from a pool.
//   Threads    Any.
//   Blocks     convolution(): for as long as the measurement takes. compute_once(): for as long as cuDNN
//              needs to load what it consists of. run(): for as long as a new handle takes, where more
//              threads run convolutions than ever before.
//   Lifetime   A convolution keeps the library, and that the device.
#pragma once

#include <array>
#include <optional>

#include "base/once_map.h"
#include "device/buffer.h"
#include "drivers/cuda/libraries/chosen_once.h"
#include "drivers/cuda/libraries/cudnn_api.h"
#include "drivers/cuda/libraries/library_call.h"
#include "ir/tensor_type.h"

namespace heddle::cuda {

// out = relu(conv(x, w) + residual + bias), each part where it is asked for; planes of three axes, those in
// front 1 where there are fewer.
struct ConvolutionProblem {
  static constexpr size_t kAxes = 3;
  using Axes = std::array<int, kAxes>;

  ir::DType dtype = ir::DType::kF32;
  int math = kCudnnFmaMath;  // of f32
  int images = 1, channels = 1, out_channels = 1, groups = 1;
  Axes in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, padding{};
  bool bias = false, residual = false, relu = false;  // the last two only with a bias
  // x, out, residual and w lie [N, plane.., C]; of planes of two axes at most.
  bool channels_last = false;

  bool operator==(const ConvolutionProblem&) const = default;
};

struct ConvolutionOperands {
  uint64_t x = 0, w = 0, out = 0, bias = 0, residual = 0, workspace = 0;
};

class Cudnn;

class CudnnConvolution final : public LibraryCall {
 public:
  ~CudnnConvolution() override;

  const char* library() const override { return problem_.channels_last ? "cuDNN (channels last)" : "cuDNN"; }
  uint64_t workspace_bytes() const override { return chosen_.workspace_bytes; }
  bool takes(const void* operands) const override;
  Status run(const void* operands, StreamHandle stream) const override;

 private:
  friend class Cudnn;
  struct Algorithm {
    int number = 0;
    uint64_t workspace_bytes = 0;
  };

  CudnnConvolution(Ref<const Cudnn> library, const ConvolutionProblem& problem)
      : library_(std::move(library)), problem_(problem) {}
  Status describe();
  Status describe_tensor(CudnnTensor& made, int images, int channels, const ConvolutionProblem::Axes& plane,
                         bool channels_last);
  Result<std::vector<Algorithm>> able(CudnnHandle handle) const;
  CudnnCode enqueue(CudnnHandle handle, const ConvolutionOperands& operands, const Algorithm& by) const;

  const Ref<const Cudnn> library_;
  const ConvolutionProblem problem_;
  CudnnTensor x_ = nullptr, out_ = nullptr, bias_ = nullptr;
  CudnnFilter w_ = nullptr;
  CudnnWindow window_ = nullptr;
  CudnnActivation activation_ = nullptr;
  Algorithm chosen_;
};

// What our kernels would do in the place of a convolution of so many images.
using ConvolutionRivals = std::function<Rival<ConvolutionOperands>(int images)>;

class Cudnn : public std::enable_shared_from_this<Cudnn> {
 public:
  static Ref<const Cudnn> make(const CudnnApi& api, Ref<const OpenDevice> device,
                               const LibraryTuning& tuning);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  std::string version() const;
  std::string describe_choices() const;  // for people
  // Null where cuDNN cannot, or the rival is as fast. `source` lends the memory that is measured with; null,
  // too, where it has none.
  Result<Ref<const CudnnConvolution>> convolution(const ConvolutionProblem& problem,
                                                  const ConvolutionRivals& rivals,
                                                  device::Source& source) const;
  // cuDNN makes static objects when it first computes, which exit() destroys before what was made earlier:
  // it computes here, before a model that has convolutions is called.
  Status compute_once(ir::DType dtype) const;

 private:
  friend class CudnnConvolution;
  struct Hash {
    size_t operator()(const ConvolutionProblem& problem) const;
  };
  using Choices = ChosenOnce<ConvolutionProblem, CudnnConvolution::Algorithm, Hash>;
  using Chosen = Choices::Chosen;
  class Asked;
  // A handle for one thread, set to a stream.
  class Lent {
   public:
    Lent(const Cudnn& library, CudnnHandle handle, StreamHandle stream)
        : library_(library), handle_(handle), stream_(stream) {}
    ~Lent() { library_.give_back(handle_, stream_); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

   private:
    const Cudnn& library_;
    const CudnnHandle handle_;
    const StreamHandle stream_;
  };
  struct alignas(64) Place {  // a line of its own: streams share none as a rule
    Atomic<CudnnHandle> handle{nullptr};
  };
  static constexpr size_t kPlaces = 64;

  Cudnn(const CudnnApi& api, Ref<const OpenDevice> device, const LibraryTuning& tuning)
      : api_(api),
        device_(std::move(device)),
        trouble_(tuning.warn),
        choices_(tuning, "cudnn", text(device_->identity(), "; cuDNN ", version())) {}
  Status check(CudnnCode code, std::string_view what) const;
  Result<CudnnHandle> take_handle(StreamHandle stream) const;
  void give_back(CudnnHandle handle, StreamHandle stream) const;
  Result<std::shared_ptr<CudnnConvolution>> described(const ConvolutionProblem& problem) const;
  Result<Ref<const CudnnConvolution>> make_convolution(const ConvolutionProblem& problem,
                                                       const ConvolutionRivals& rivals,
                                                       device::Source& source) const;
  Result<Chosen> choose(const CudnnConvolution& convolution, const ConvolutionRivals& rivals,
                        device::Source& source) const;
  Status compute(ir::DType dtype) const;

  const CudnnApi api_;
  const Ref<const OpenDevice> device_;
  const Trouble trouble_;
  // Handles that nobody uses. A stream looks at its own place first, then at the others'.
  mutable std::array<Place, kPlaces> idle_;
  mutable OnceMap<int, bool> computed_;  // by type
  const Choices choices_;
};

}  // namespace heddle::cuda
