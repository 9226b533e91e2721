// cuDNN of the double: convolutions of planes of two and of three axes, by plain loops.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/sync.h"
#include "base/yield.h"
#include "drivers/cuda/kernels/element.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/kernel_table.h"
#include "tests/cuda_double/stream.h"
#include "tests/cuda_double/touches.h"

namespace heddle::cuda_double {
namespace dnn {
namespace {

using cuda::CudnnCode;
using cuda::Type;

constexpr int kAlgorithms = 2;
constexpr std::array<int64_t, kAlgorithms> kTimesUs = {20, 12};  // implicit, precomputed
constexpr std::array<size_t, kAlgorithms> kWorkspaces = {0, 256};

std::array<Atomic<int64_t>, kAlgorithms> runs;  // counters that order nothing

struct Handle {
  const int device = current_device("cudnnCreate");
  Stream* stream = nullptr;
  Atomic<bool> busy{false};  // a handle is one thread's: exchanged by each call, which orders nothing else
};

class Using {
 public:
  Using(cuda::CudnnHandle handle, const char* what) : handle_(*static_cast<Handle*>(handle)) {
    require_current(handle_.device, what, "the handle is another context's");
    if (handle_.busy.exchange_acq_rel(true)) stop(what, "two threads use one handle");
    give_way();  // for longer than cuDNN has it
  }
  ~Using() { handle_.busy.store_release(false); }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;

 private:
  Handle& handle_;
};

struct Shape {  // of a tensor or a filter
  int type = -1;
  std::vector<int64_t> extents;
  bool channels_last = false;

  Type element() const {
    return type == cuda::kCudnnF16 ? Type::kF16 : type == cuda::kCudnnBF16 ? Type::kBF16 : Type::kF32;
  }
  int64_t count() const {
    int64_t all = 1;
    for (const int64_t each : extents) all *= each;
    return all;
  }
  // From a channel's first element to the next one's, and from one place of its plane to the next one.
  int64_t channel() const { return channels_last ? 1 : count() / (extents[0] * extents[1]); }
  int64_t place() const { return channels_last ? extents[1] : 1; }
  int64_t outer() const { return count() / extents[0]; }
  bool lies(bool last) const { return channels_last == last || count() == extents[0]; }
  uint64_t bytes() const { return static_cast<uint64_t>(count()) * (type == cuda::kCudnnF32 ? 4 : 2); }
  void require_read(uint64_t at, const char* what) const {
    check_alignment(at, what);
    require_written(to_read(at, bytes(), what), bytes(), what);
  }
  void require_write(uint64_t at, const char* what) const {
    check_alignment(at, what);
    to_write(at, bytes(), what);
  }
  static void check_alignment(uint64_t at, const char* what) {
    if (at % 16 != 0) stop(what, "an address that is no multiple of 16");
  }
};

struct Window {
  std::vector<int64_t> padding, strides, dilations;
  int64_t groups = 1;
  int math = cuda::kCudnnDefaultMath;
};

struct Activation {
  int mode = -1;
};

struct Convolution {
  Shape x, w, out, bias;
  Window window;
  uint64_t x_at, w_at, out_at, residual_at = 0, bias_at = 0;
  bool relu = false;

  // f(at) for each place of the extents from axis `first` on.
  template <class F>
  static void each_place(const std::vector<int64_t>& extents, size_t first, F f) {
    std::vector<int64_t> at(extents.size() - first, 0);
    for (bool more = true; more;) {
      f(at);
      more = false;
      for (size_t axis = at.size(); axis-- > 0 && !more;) {
        more = ++at[axis] < extents[axis + first];
        if (!more) at[axis] = 0;
      }
    }
  }
  float factor(float value) const {
    if (x.type != cuda::kCudnnF32 || window.math == cuda::kCudnnFmaMath) return value;
    return cuda::from_f16(cuda::to_f16(value));
  }
  struct Tap {  // from the first elements of a channel of x and of w
    int64_t x, w;
  };
  std::vector<Tap> taps_at(const std::vector<int64_t>& place) const {
    std::vector<Tap> taps;
    each_place(w.extents, 2, [&](const std::vector<int64_t>& tap) {
      int64_t from = 0, weight = 0;
      for (size_t axis = 0; axis < tap.size(); ++axis) {
        const int64_t at =
            place[axis] * window.strides[axis] - window.padding[axis] + tap[axis] * window.dilations[axis];
        if (at < 0 || at >= x.extents[axis + 2]) return;
        from = from * x.extents[axis + 2] + at;
        weight = weight * w.extents[axis + 2] + tap[axis];
      }
      taps.push_back({from, weight});
    });
    return taps;
  }
  float sum(int64_t image, int64_t channel, const std::vector<Tap>& taps) const {
    const int64_t inner = w.extents[1], group = channel / (out.extents[1] / window.groups);
    float all = 0;
    for (int64_t c = 0; c < inner; ++c) {
      const int64_t from = image * x.outer() + (group * inner + c) * x.channel();
      const int64_t weight = channel * w.outer() + c * w.channel();
      for (const Tap& tap : taps) {
        all += factor(cuda::load<float>(x_at, x.element(), from + tap.x * x.place())) *
               factor(cuda::load<float>(w_at, w.element(), weight + tap.w * w.place()));
      }
    }
    return all;
  }
  void compute() const {
    for (int64_t image = 0; image < out.extents[0]; ++image) {
      for (int64_t channel = 0; channel < out.extents[1]; ++channel) {
        int64_t at = image * out.outer() + channel * out.channel();
        each_place(out.extents, 2, [&](const std::vector<int64_t>& place) {
          float value = sum(image, channel, taps_at(place));
          if (bias_at != 0) value += cuda::load<float>(bias_at, out.element(), channel);
          if (residual_at != 0) value += cuda::load<float>(residual_at, out.element(), at);
          if (relu && value < 0) value = 0;
          cuda::store<float>(out_at, out.element(), at, value);
          at += out.place();
        });
      }
    }
  }
};

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// With a filter of channels last only tensors that lie so, of planes of two axes and of 16 bits; NCHW is for
// all.
bool lies_well(const Convolution& c) {
  if (c.w.channels_last && (c.x.extents.size() != 4 || c.x.type == cuda::kCudnnF32)) return false;
  return c.x.lies(c.w.channels_last) && c.out.lies(c.w.channels_last);
}

// Whether the extents are those that the others make.
bool fits(const Convolution& c) {
  const size_t rank = c.x.extents.size();
  if (rank < 4 || rank > 5 || c.w.extents.size() != rank || c.out.extents.size() != rank) return false;
  if (c.window.strides.size() != rank - 2 || c.x.extents[1] != c.w.extents[1] * c.window.groups) return false;
  if (c.out.extents[0] != c.x.extents[0] || c.out.extents[1] != c.w.extents[0]) return false;
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    const int64_t reach = c.window.dilations[axis] * (c.w.extents[axis + 2] - 1) + 1;
    const int64_t whole = c.x.extents[axis + 2] + 2 * c.window.padding[axis] - reach;
    if (whole < 0 || whole / c.window.strides[axis] + 1 != c.out.extents[axis + 2]) return false;
  }
  return true;
}

CudnnCode enqueue(cuda::CudnnHandle handle, const Convolution& c, int algorithm, void* workspace,
                  size_t workspace_bytes) {
  const auto which = static_cast<size_t>(algorithm);
  if (which >= kAlgorithms || workspace_bytes < kWorkspaces[which] || !fits(c))
    return cuda::kCudnnBadParameter;
  if (!lies_well(c)) return cuda::kCudnnNotSupported;
  // Depthwise ones it says it can, and cannot.
  if (c.window.groups > 1 && c.w.extents[1] == 1) return cuda::kCudnnNotSupported;
  static_cast<Handle*>(handle)->stream->tell([c, which, workspace] {
    c.x.require_read(c.x_at, "cudnnConvolutionForward, x");
    c.w.require_read(c.w_at, "cudnnConvolutionForward, w");
    if (c.residual_at != 0) c.out.require_read(c.residual_at, "cudnnConvolutionForward, z");
    if (c.bias_at != 0) c.bias.require_read(c.bias_at, "cudnnConvolutionForward, bias");
    c.out.require_write(c.out_at, "cudnnConvolutionForward, y");
    if (kWorkspaces[which] != 0)
      std::memset(to_write(number(workspace), kWorkspaces[which], "cudnnConvolutionForward, workspace"), 0x5a,
                  kWorkspaces[which]);
    c.compute();
    runs[which].add_relaxed(1);
    spend(std::chrono::microseconds(kTimesUs[which]));
  });
  return cuda::kCudnnSuccess;
}

Convolution described(cuda::CudnnTensor x_tensor, const void* x, cuda::CudnnFilter w_filter, const void* w,
                      cuda::CudnnWindow window, cuda::CudnnTensor y_tensor, void* y) {
  Convolution c;
  c.x = *static_cast<Shape*>(x_tensor);
  c.w = *static_cast<Shape*>(w_filter);
  c.out = *static_cast<Shape*>(y_tensor);
  c.window = *static_cast<Window*>(window);
  c.x_at = number(x);
  c.w_at = number(w);
  c.out_at = number(y);
  return c;
}

CudnnCode convolve(cuda::CudnnHandle handle, const void* alpha, cuda::CudnnTensor x_tensor, const void* x,
                   cuda::CudnnFilter w_filter, const void* w, cuda::CudnnWindow window, int algorithm,
                   void* workspace, size_t workspace_bytes, const void* beta, cuda::CudnnTensor y_tensor,
                   void* y) {
  const Using used(handle, "cudnnConvolutionForward");
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return cuda::kCudnnNotSupported;  // of the double
  return enqueue(handle, described(x_tensor, x, w_filter, w, window, y_tensor, y), algorithm, workspace,
                 workspace_bytes);
}

CudnnCode convolve_and_finish(cuda::CudnnHandle handle, const void* alpha, cuda::CudnnTensor x_tensor,
                              const void* x, cuda::CudnnFilter w_filter, const void* w,
                              cuda::CudnnWindow window, int algorithm, void* workspace,
                              size_t workspace_bytes, const void* alpha_of_z, cuda::CudnnTensor z_tensor,
                              const void* z, cuda::CudnnTensor bias_tensor, const void* bias,
                              cuda::CudnnActivation activation, cuda::CudnnTensor y_tensor, void* y) {
  const Using used(handle, "cudnnConvolutionBiasActivationForward");
  Convolution c = described(x_tensor, x, w_filter, w, window, y_tensor, y);
  c.bias = *static_cast<Shape*>(bias_tensor);
  const int mode = static_cast<Activation*>(activation)->mode;
  c.relu = mode == cuda::kCudnnRelu;
  if (!c.relu && (mode != cuda::kCudnnIdentity || algorithm != cuda::kCudnnPrecomputedGemm))
    return cuda::kCudnnNotSupported;
  const auto& added = *static_cast<Shape*>(z_tensor);
  if (*static_cast<const float*>(alpha) != 1 || added.extents != c.out.extents ||
      added.channels_last != c.out.channels_last || c.bias.count() != c.out.extents[1] ||
      c.bias.extents[1] != c.out.extents[1])
    return cuda::kCudnnBadParameter;
  c.bias_at = number(bias);
  if (*static_cast<const float*>(alpha_of_z) != 0) c.residual_at = number(z);
  return enqueue(handle, c, algorithm, workspace, workspace_bytes);
}

std::vector<int64_t> numbers(const int* first, int count) { return {first, first + count}; }

template <class T>
CudnnCode create(void** made) {
  return *made = new T, cuda::kCudnnSuccess;
}
template <class T>
CudnnCode destroy(void* made) {
  delete static_cast<T*>(made);
  return cuda::kCudnnSuccess;
}

bool lies(int rank, const int* extents, const int* strides, bool channels_last) {
  int next = channels_last ? extents[1] : 1;
  for (int axis = rank; axis-- > 2; next *= extents[axis]) {
    if (strides[axis] != next) return false;
  }
  if (strides[1] != (channels_last ? 1 : next)) return false;
  return strides[0] == (channels_last ? next : next * extents[1]);
}

void set_descriptors(cuda::CudnnApi& api) {
  api.tensor_create = create<Shape>;
  api.tensor_destroy = destroy<Shape>;
  api.tensor_set = [](cuda::CudnnTensor tensor, int type, int rank, const int* extents, const int* strides) {
    // Of the double: contiguous ones alone. Where both orders are the same bytes, strides tell which it is.
    for (const bool last : {false, true}) {
      if (lies(rank, extents, strides, last))
        return *static_cast<Shape*>(tensor) = {type, numbers(extents, rank), last}, cuda::kCudnnSuccess;
    }
    return cuda::kCudnnNotSupported;
  };
  api.filter_create = create<Shape>;
  api.filter_destroy = destroy<Shape>;
  api.filter_set = [](cuda::CudnnFilter filter, int type, int format, int rank, const int* extents) {
    if (format != cuda::kCudnnNCHW && format != cuda::kCudnnNHWC) return cuda::kCudnnNotSupported;
    return *static_cast<Shape*>(filter) = {type, numbers(extents, rank), format == cuda::kCudnnNHWC},
           cuda::kCudnnSuccess;
  };
  api.window_create = create<Window>;
  api.window_destroy = destroy<Window>;
  api.window_set = [](cuda::CudnnWindow handle, int axes, const int* padding, const int* strides,
                      const int* dilations, int mode, int compute_type) {
    if (mode != cuda::kCudnnCrossCorrelation || compute_type != cuda::kCudnnF32)
      return cuda::kCudnnBadParameter;
    auto& window = *static_cast<Window*>(handle);
    window.padding = numbers(padding, axes);
    window.strides = numbers(strides, axes);
    window.dilations = numbers(dilations, axes);
    return cuda::kCudnnSuccess;
  };
  api.window_set_groups = [](cuda::CudnnWindow window, int groups) {
    return static_cast<Window*>(window)->groups = groups, cuda::kCudnnSuccess;
  };
  api.window_set_math = [](cuda::CudnnWindow window, int math) {
    return static_cast<Window*>(window)->math = math, cuda::kCudnnSuccess;
  };
  api.activation_create = create<Activation>;
  api.activation_destroy = destroy<Activation>;
  api.activation_set = [](cuda::CudnnActivation activation, int mode, int, double) {
    return static_cast<Activation*>(activation)->mode = mode, cuda::kCudnnSuccess;
  };
}

cuda::CudnnApi make_cudnn() {
  cuda::CudnnApi api;
  set_descriptors(api);
  api.version = [] { return size_t{91400}; };
  api.error_text = [](CudnnCode code) {
    return code == cuda::kCudnnNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
  };
  api.create = [](cuda::CudnnHandle* made) { return *made = new Handle, cuda::kCudnnSuccess; };
  api.destroy = [](cuda::CudnnHandle handle) {
    require_context("cudnnDestroy");
    return destroy<Handle>(handle);
  };
  api.set_stream = [](cuda::CudnnHandle handle, cuda::StreamHandle stream) {
    const Using used(handle, "cudnnSetStream");
    return static_cast<Handle*>(handle)->stream = stream_of(stream, "cudnnSetStream"), cuda::kCudnnSuccess;
  };
  // Seven images are too odd for the fastest.
  api.workspace_of = [](cuda::CudnnHandle handle, cuda::CudnnTensor x, cuda::CudnnFilter, cuda::CudnnWindow,
                        cuda::CudnnTensor, int algorithm, size_t* bytes) {
    const Using used(handle, "cudnnGetConvolutionForwardWorkspaceSize");
    if (static_cast<Shape*>(x)->extents[0] == 7 && algorithm == cuda::kCudnnPrecomputedGemm)
      return cuda::kCudnnNotSupported;
    return *bytes = kWorkspaces[static_cast<size_t>(algorithm)], cuda::kCudnnSuccess;
  };
  api.convolve = convolve;
  api.convolve_and_finish = convolve_and_finish;
  return api;
}

}  // namespace
}  // namespace dnn

const cuda::CudnnApi& cudnn() {
  static const cuda::CudnnApi table = dnn::make_cudnn();
  return table;
}

int64_t runs_of_cudnn() { return dnn::runs[0].load_relaxed() + dnn::runs[1].load_relaxed(); }

}  // namespace heddle::cuda_double
