// Libraries of NVIDIA's that fail while a program is made: our kernels compute, and nothing is kept of it.
#include <doctest/doctest.h>

#include <filesystem>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;

constexpr int kInternalError = 14, kAllocationFailed = 4002;  // of cuBLASLt, of cuDNN

int failures_left;  // of one thread's tests

BlasCode failing_product(BlasHandle handle, BlasOperation operation, const void* alpha, const void* y,
                         BlasLayout y_layout, const void* x, BlasLayout x_layout, const void* beta,
                         const void* c, BlasLayout c_layout, void* out, BlasLayout out_layout,
                         const BlasAlgorithm* algorithm, void* workspace, size_t bytes, StreamHandle stream) {
  if (failures_left-- > 0) return kInternalError;
  return cuda_double::blas_lt().multiply(handle, operation, alpha, y, y_layout, x, x_layout, beta, c,
                                         c_layout, out, out_layout, algorithm, workspace, bytes, stream);
}

CudnnCode failing_convolution(CudnnHandle handle, const void* alpha, CudnnTensor x_at, const void* x,
                              CudnnFilter w_at, const void* w, CudnnWindow window, int algorithm,
                              void* workspace, size_t bytes, const void* beta, CudnnTensor out_at,
                              void* out) {
  if (failures_left-- > 0) return kAllocationFailed;
  return cuda_double::cudnn().convolve(handle, alpha, x_at, x, w_at, w, window, algorithm, workspace, bytes,
                                       beta, out_at, out);
}

struct LibraryModel {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
};

LibraryModel product() {
  ir::Builder b;
  LibraryModel made{{}, {random_tensor(DType::kF32, {130, 8}, 1)}};
  const ir::Tensor w = random_tensor(DType::kF32, {8, 4}, 2);
  b.output(*b.node("MatMul", {b.input("x", made.inputs[0].type()), b.constant(w)}));
  made.graph = *b.take();
  return made;
}

LibraryModel convolution() {
  ir::Builder b;
  LibraryModel made{{}, {random_tensor(DType::kF32, {2, 4, 6, 6}, 1)}};
  const ir::Tensor w = random_tensor(DType::kF32, {8, 4, 3, 3}, 2);
  b.output(*b.node("Conv", {b.input("x", made.inputs[0].type()), b.constant(w)}));
  made.graph = *b.take();
  return made;
}

// Whether a library computes a model that was loaded anew; its values are checked.
bool by_library(device::Device& device, const LibraryModel& made) {
  const auto module = device.load(made.graph, {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE(program.ok());
  const auto wanted = ir::evaluate(made.graph, made.inputs);
  REQUIRE(wanted.ok());
  const auto got = conformance::Session(device).run(*program, made.inputs);
  REQUIRE(got.ok());
  CHECK(conformance::difference(got->front(), wanted->front(), {1e-4, 1e-4}) == "");
  const auto& steps = static_cast<const CudaProgram&>(**program).lowered().steps;
  return std::holds_alternative<LibraryStep>(steps.front());
}

TEST_CASE("a library that fails once leaves one program to our kernels, says so, and nothing of it is kept") {
  const std::string folder = std::filesystem::temp_directory_path() / text("heddle-failing-", getpid());
  BlasLtApi blas = cuda_double::blas_lt();
  CudnnApi cudnn = cuda_double::cudnn();
  blas.multiply = failing_product;
  cudnn.convolve = failing_convolution;
  struct Row {
    const char* what;
    LibraryModel made;
    const char* said;
  };
  for (const Row& row : {Row{"cuBLASLt", product(), "cublasLtMatmul returned status 14"},
                         Row{"cuDNN", convolution(), "cudnnConvolutionForward says"}}) {
    CAPTURE(row.what);
    std::vector<std::string> warned;
    failures_left = 0;
    const auto device = make_cuda_device(
        {.api = &cuda_double::api(),
         .image = cuda_double::image(),
         .blas = &blas,
         .cudnn = &cudnn,
         .tuning = {.folder = folder, .warn = [&](const auto& line) { warned.push_back(line); }}});
    REQUIRE(device.ok());
    failures_left = 1;
    CHECK_FALSE(by_library(**device, row.made));
    failures_left = 1;
    CHECK_FALSE(by_library(**device, row.made));
    REQUIRE(warned.size() == 1);
    CHECK(warned[0].find(row.said) != std::string::npos);
    CHECK((*device)->lost().ok());
    CHECK(by_library(**device, row.made));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("products of one feature or one row, however their factors lie, are the library's") {
  const auto device = make_cuda_device({.api = &cuda_double::api(),
                                        .image = cuda_double::image(),
                                        .blas = &cuda_double::blas_lt(),
                                        .tuning = {.on = false}});
  REQUIRE(device.ok());
  struct Row {
    const char* op;
    ir::Extents x, y;
    ir::Attributes attributes;
  };
  for (const Row& row :
       {Row{"Linear", {130, 1}, {64, 1}, {{"trans_w", int64_t{1}}}},
        Row{"Gemm", {130, 1}, {64, 1}, {{"transB", int64_t{1}}}},
        Row{"Gemm", {8, 1}, {8, 64}, {{"transA", int64_t{1}}}},
        Row{"Gemm", {1, 130}, {1, 64}, {{"transA", int64_t{1}}}}, Row{"MatMul", {130, 1}, {1, 1}, {}}}) {
    CAPTURE(text(row.op, row.x, row.y));
    ir::Builder b;
    LibraryModel made{{}, {random_tensor(DType::kF32, row.x, 1)}};
    const ir::Tensor w = random_tensor(DType::kF32, row.y, 2);
    b.output(*b.node(row.op, {b.input("x", made.inputs[0].type()), b.constant(w)}, row.attributes));
    made.graph = *b.take();
    CHECK(by_library(**device, made));
  }
}

}  // namespace
}  // namespace heddle::cuda
