// Each check of the double's cuBLASLt and cuDNN has a program here that is caught.
#include "mistakes_fixture.h"

namespace heddle::cuda_double {
namespace {

constexpr uint64_t kBytes = 64;  // of a matrix, and of each operand of a convolution

const void* pointer(Address at) { return reinterpret_cast<const void*>(at); }
void* pointer_to_write(Address at) { return reinterpret_cast<void*>(at); }

struct Operands {
  Address a, b, out;
};
Operands good_operands(const Ground& ground) {
  return {ground.written(kBytes), ground.written(kBytes), ground.fresh(kBytes)};
}

// out = a b, matrices of 4 x 4.
void multiply(cuda::BlasHandle handle, const Operands& operands, cuda::StreamHandle stream, float beta = 0) {
  cuda::BlasOperation operation = nullptr;
  cuda::BlasLayout layout = nullptr;
  blas_lt().operation_create(&operation, cuda::kBlasComputeF32, cuda::kBlasF32);
  blas_lt().layout_create(&layout, cuda::kBlasF32, 4, 4, 4);
  const float alpha = 1;
  const cuda::BlasAlgorithm without_workspace = {{2}};
  blas_lt().multiply(handle, operation, &alpha, pointer(operands.a), layout, pointer(operands.b), layout,
                     &beta, pointer(operands.out), layout, pointer_to_write(operands.out), layout,
                     &without_workspace, nullptr, 0, stream);
}

cuda::BlasHandle make_blas() {
  cuda::BlasHandle handle = nullptr;
  blas_lt().create(&handle);
  return handle;
}

void multiply_with(const Ground& ground, const Operands& operands, float beta = 0) {
  multiply(make_blas(), operands, ground.stream, beta);
  api().stream_synchronize(ground.stream);
}

// out = a convolved with b: one image of one channel of 4 x 4, a kernel of 1 x 1.
void convolve(cuda::CudnnHandle handle, const Operands& operands, int algorithm = 0) {
  constexpr int kImage[] = {1, 1, 4, 4}, kStrides[] = {16, 16, 4, 1}, kKernel[] = {1, 1, 1, 1};
  constexpr int kNone[] = {0, 0}, kOnes[] = {1, 1};
  cuda::CudnnTensor image = nullptr;
  cuda::CudnnFilter kernel = nullptr;
  cuda::CudnnWindow window = nullptr;
  cudnn().tensor_create(&image);
  cudnn().tensor_set(image, cuda::kCudnnF32, 4, kImage, kStrides);
  cudnn().filter_create(&kernel);
  cudnn().filter_set(kernel, cuda::kCudnnF32, cuda::kCudnnNCHW, 4, kKernel);
  cudnn().window_create(&window);
  cudnn().window_set(window, 2, kNone, kOnes, kOnes, cuda::kCudnnCrossCorrelation, cuda::kCudnnF32);
  cudnn().window_set_groups(window, 1);
  const float one = 1, zero = 0;
  cudnn().convolve(handle, &one, image, pointer(operands.a), kernel, pointer(operands.b), window, algorithm,
                   pointer_to_write(operands.out), 256, &zero, image, pointer_to_write(operands.out));
}

cuda::CudnnHandle make_cudnn(cuda::StreamHandle stream) {
  cuda::CudnnHandle handle = nullptr;
  cudnn().create(&handle);
  cudnn().set_stream(handle, stream);
  return handle;
}

void convolve_with(const Ground& ground, const Operands& operands, int algorithm = 0) {
  convolve(make_cudnn(ground.stream), operands, algorithm);
  api().stream_synchronize(ground.stream);
}

using Change = void (*)(const Ground& ground, Operands& operands);
template <auto kRun, Change kChange>
void run_with(const Ground& ground) {
  Operands operands = good_operands(ground);
  kChange(ground, operands);
  kRun(ground, operands);
}
constexpr auto kMultiply = [](const Ground& ground, const Operands& with) { multiply_with(ground, with); };
constexpr auto kConvolve = [](const Ground& ground, const Operands& with) { convolve_with(ground, with); };

void unwritten_a(const Ground& ground, Operands& operands) { operands.a = ground.fresh(kBytes); }
void unwritten_b(const Ground& ground, Operands& operands) { operands.b = ground.fresh(kBytes); }
void misaligned_a(const Ground& ground, Operands& operands) { operands.a = ground.written(kBytes + 4) + 4; }
void misaligned_out(const Ground& ground, Operands& operands) { operands.out = ground.fresh(kBytes + 4) + 4; }
void short_out(const Ground& ground, Operands& operands) { operands.out = ground.fresh(kBytes - 1); }

void add_unwritten_matrix(const Ground& ground) { multiply_with(ground, good_operands(ground), 1); }
void convolve_with_short_workspace(const Ground& ground) { convolve_with(ground, good_operands(ground), 1); }

void multiply_without_an_order(const Ground& ground) {
  const Operands operands = good_operands(ground);
  const cuda::EventHandle gate = make_held_event();
  api().stream_wait(ground.stream, gate, 0);
  ground.fill(operands.a, 16, ground.stream);
  const cuda::StreamHandle other = ground.make_stream();
  multiply(make_blas(), operands, other);
  reach(gate);
  api().stream_synchronize(ground.stream);
  api().stream_synchronize(other);
}

void convolve_on_the_null_stream(const Ground& ground) {
  convolve(make_cudnn(nullptr), good_operands(ground));
}

void multiply_by_another_context(const Ground& ground) {
  const cuda::BlasHandle handle = make_blas();
  const Operands operands = good_operands(ground);
  const Ground other(1);
  multiply(handle, operands, other.stream);
}

void convolve_by_another_context(const Ground& ground) {
  const cuda::CudnnHandle handle = make_cudnn(ground.stream);
  const Ground other(1);
  cudnn().set_stream(handle, other.stream);
}

void share_a_handle(const Ground& ground) {
  const cuda::CudnnHandle handle = make_cudnn(ground.stream);
  run_together(2, [&](int) {
    api().push_context(ground.context);
    for (int i = 0; i < 100000; ++i) cudnn().set_stream(handle, ground.stream);
  });
}

constexpr Mistake kLibraryMistakes[] = {
    {"unwritten A", "cublasLtMatmul, A: memory that nothing", run_with<kMultiply, unwritten_a>},
    {"unwritten B", "cublasLtMatmul, B: memory that nothing", run_with<kMultiply, unwritten_b>},
    {"unwritten C", "cublasLtMatmul, C: memory that nothing", add_unwritten_matrix},
    {"misaligned A", "cublasLtMatmul, A: an address that is no", run_with<kMultiply, misaligned_a>},
    {"misaligned D", "cublasLtMatmul, D: an address that is no", run_with<kMultiply, misaligned_out>},
    {"a short D", "cublasLtMatmul, D: an address that is not allocated", run_with<kMultiply, short_out>},
    {"a product without an order", "nothing orders two streams", multiply_without_an_order},
    {"another context's cuBLASLt", "the handle is another context's", multiply_by_another_context},
    {"unwritten x", "cudnnConvolutionForward, x: memory that nothing", run_with<kConvolve, unwritten_a>},
    {"unwritten w", "cudnnConvolutionForward, w: memory that nothing", run_with<kConvolve, unwritten_b>},
    {"misaligned x", "cudnnConvolutionForward, x: an address that is no", run_with<kConvolve, misaligned_a>},
    {"misaligned y", "cudnnConvolutionForward, y: an address that is no",
     run_with<kConvolve, misaligned_out>},
    {"a short y", "cudnnConvolutionForward, y: an address that is not", run_with<kConvolve, short_out>},
    {"a short workspace", "cudnnConvolutionForward, workspace: an address", convolve_with_short_workspace},
    {"cuDNN on the null stream", "cudnnSetStream: the null stream", convolve_on_the_null_stream},
    {"another context's cuDNN", "the handle is another context's", convolve_by_another_context},
    {"a handle of two threads", "two threads use one handle", share_a_handle},
};

TEST_CASE("mistake with a library" * doctest::skip()) { run_mistake(kLibraryMistakes); }

TEST_CASE("what NVIDIA's libraries would leave undefined ends the process, which says why") {
  check_caught(kLibraryMistakes, "mistake with a library");
}

}  // namespace
}  // namespace heddle::cuda_double
