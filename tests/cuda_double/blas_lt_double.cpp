// cuBLASLt of the double: matrices are sequences of columns, as the library has them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "drivers/cuda/kernels/element.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/kernel_table.h"
#include "tests/cuda_double/stream.h"
#include "tests/cuda_double/touches.h"

namespace heddle::cuda_double {
namespace {

using cuda::BlasCode;
using cuda::Type;

constexpr int kAlgorithms = 3;
constexpr std::array<int64_t, kAlgorithms> kTimesUs = {30, 10, 20};
constexpr std::array<size_t, kAlgorithms> kWorkspaces = {4096, 512, 0};

std::array<int, kMostDevices> the_libraries;    // handles, by device
std::array<Atomic<int64_t>, kAlgorithms> runs;  // counters that order nothing
constexpr int64_t kUsualProductNs = 25'000, kUsualFewRowsNs = 26'000, kUsualTensorNs = 27'000;
Atomic<int64_t> few_rows_ns{kUsualFewRowsNs};
Atomic<int64_t> tensor_ns{kUsualTensorNs};
Atomic<int64_t> product_ns{kUsualProductNs};  // set before what is measured

ManualClock& its_clock() {
  static ManualClock clock;
  return clock;
}

struct Operation {
  int compute = cuda::kBlasComputeF32;
  int32_t turn_a = 0, turn_b = 0;
  uint32_t epilogue = cuda::kBlasPlain;
  uint64_t bias = 0;
};

struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, line = 0;
  int32_t batches = 1;
  int64_t batch_stride = 0;

  Type element() const {
    return type == cuda::kBlasF16 ? Type::kF16 : type == cuda::kBlasBF16 ? Type::kBF16 : Type::kF32;
  }
  int64_t end() const { return (batches - 1) * batch_stride + (columns - 1) * line + rows; }
  uint64_t size() const { return type == cuda::kBlasF32 ? 4 : 2; }
  uint64_t bytes() const { return static_cast<uint64_t>(end()) * size(); }
  void require_read(uint64_t at, const char* what) const {
    check_alignment(at, what);
    const std::byte* const first = to_read(at, bytes(), what);
    for (int64_t batch = 0; batch < batches; ++batch) {
      for (int64_t column = 0; column < columns; ++column) {
        const auto begin = static_cast<uint64_t>(batch * batch_stride + column * line) * size();
        require_written(first + begin, static_cast<uint64_t>(rows) * size(), what);
      }
    }
  }
  void require_write(uint64_t at, const char* what) const {
    check_alignment(at, what);
    to_write(at, bytes(), what);
  }
  static void check_alignment(uint64_t at, const char* what) {
    if (at % 16 != 0) stop(what, "an address that is no multiple of 16, which the preference promised");
  }
};

struct Factor {  // element (i, k) of a matrix that may be turned
  Layout layout;
  uint64_t data;
  bool turned;

  float at(int64_t batch, int64_t i, int64_t k) const {
    const int64_t place = turned ? k + i * layout.line : i + k * layout.line;
    return cuda::load<float>(data, layout.element(), batch * layout.batch_stride + place);
  }
};

// As tensor cores take a factor of f32; here it loses the bits that have no place.
float rounded(float value, int compute) {
  if (compute == cuda::kBlasComputeF16) return cuda::from_f16(cuda::to_f16(value));
  if (compute == cuda::kBlasComputeBF16) return cuda::from_bf16(cuda::to_bf16(value));
  constexpr uint32_t kTF32 = ~uint32_t{0x1fff};
  return compute == cuda::kBlasComputeTF32 ? std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kTF32)
                                           : value;
}

bool known_compute(int compute) {
  return compute == cuda::kBlasComputeF32 || compute == cuda::kBlasComputeF16 ||
         compute == cuda::kBlasComputeBF16 || compute == cuda::kBlasComputeTF32;
}

void add_products(float* sums, const float* row, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += row[i] * factor;
}

struct Multiplication {
  Operation operation;
  Factor a, b;
  Layout out;
  uint64_t c, d;
  float alpha, beta;

  // The elements of one batch, rounded as they are multiplied: those of one k lie together.
  std::vector<float> packed(const Factor& factor, int64_t batch, int64_t lines, int64_t depth) const {
    std::vector<float> all;
    all.reserve(static_cast<size_t>(lines * depth));
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < lines; ++i) all.push_back(rounded(factor.at(batch, i, k), operation.compute));
    }
    return all;
  }
  float ended(float sum, int64_t row, int64_t at) const {
    sum *= alpha;
    if (beta != 0) sum += beta * cuda::load<float>(c, out.element(), at);
    if ((operation.epilogue & cuda::kBlasAddBias) != 0)
      sum += cuda::load<float>(operation.bias, out.element(), row);
    return (operation.epilogue & cuda::kBlasRelu) != 0 && sum < 0 ? 0 : sum;
  }
  void compute() const {
    const int64_t depth = a.turned ? a.layout.rows : a.layout.columns;
    for (int64_t batch = 0; batch < out.batches; ++batch) {
      const std::vector<float> rows = packed(a, batch, out.rows, depth),
                               columns = packed(b, batch, out.columns, depth);
      std::vector<float> sums(static_cast<size_t>(out.rows));
      for (int64_t j = 0; j < out.columns; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t term = 0; term < depth; ++term) {
          const int64_t k = (term + out.columns) % depth;
          add_products(sums.data(), rows.data() + k * out.rows,
                       columns[static_cast<size_t>(k * out.columns + j)], out.rows);
        }
        for (int64_t i = 0; i < out.rows; ++i) {
          const int64_t at = batch * out.batch_stride + j * out.line + i;
          cuda::store<float>(d, out.element(), at, ended(sums[static_cast<size_t>(i)], i, at));
        }
      }
    }
  }
};

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

template <class T>
BlasCode set(T& member, const void* value, size_t bytes) {
  if (bytes != sizeof member) return cuda::kBlasInvalidValue;
  std::memcpy(&member, value, bytes);
  return cuda::kBlasSuccess;
}

BlasCode operation_set(cuda::BlasOperation handle, int attribute, const void* value, size_t bytes) {
  auto& operation = *static_cast<Operation*>(handle);
  switch (attribute) {
    case cuda::kBlasTurnA:
      return set(operation.turn_a, value, bytes);
    case cuda::kBlasTurnB:
      return set(operation.turn_b, value, bytes);
    case cuda::kBlasEpilogue:
      return set(operation.epilogue, value, bytes);
    case cuda::kBlasBias:
      return set(operation.bias, value, bytes);
    default:
      return cuda::kBlasInvalidValue;
  }
}

BlasCode layout_set(cuda::BlasLayout handle, int attribute, const void* value, size_t bytes) {
  auto& layout = *static_cast<Layout*>(handle);
  if (attribute == cuda::kBlasBatches) return set(layout.batches, value, bytes);
  if (attribute == cuda::kBlasBatchStride) return set(layout.batch_stride, value, bytes);
  return cuda::kBlasInvalidValue;
}

// Seven columns are too odd for the fastest.
bool refuses(int algorithm, const Layout& out) { return algorithm == 1 && out.columns == 7; }

BlasCode heuristics(cuda::BlasHandle, cuda::BlasOperation operation, cuda::BlasLayout a, cuda::BlasLayout,
                    cuda::BlasLayout, cuda::BlasLayout out, cuda::BlasPreference, int asked,
                    cuda::BlasHeuristic* found, int* count) {
  require_context("cublasLtMatmulAlgoGetHeuristic");
  const auto& first = *static_cast<Layout*>(a);
  const int64_t depth = static_cast<Operation*>(operation)->turn_a != 0 ? first.rows : first.columns;
  *count = 0;
  if (first.type != cuda::kBlasF32 && depth % 2 != 0) return cuda::kBlasNotSupported;
  const int lowest = static_cast<Layout*>(out)->rows == 2 ? kAlgorithms - 1 : 0;
  for (int i = lowest; i < kAlgorithms && *count < asked; ++i) {
    if (refuses(i, *static_cast<Layout*>(out))) continue;
    cuda::BlasHeuristic& each = found[*count];
    each = {};
    each.algorithm.data[0] = static_cast<uint64_t>(i);
    each.workspace_bytes = kWorkspaces[static_cast<size_t>(i)];
    ++*count;
  }
  return cuda::kBlasSuccess;
}

BlasCode algorithm_check(cuda::BlasHandle, cuda::BlasOperation, cuda::BlasLayout, cuda::BlasLayout,
                         cuda::BlasLayout, cuda::BlasLayout out, const cuda::BlasAlgorithm* algorithm,
                         cuda::BlasHeuristic* checked) {
  require_context("cublasLtMatmulAlgoCheck");
  if (algorithm->data[0] >= kAlgorithms) return cuda::kBlasInvalidValue;
  const auto which = static_cast<int>(algorithm->data[0]);
  if (refuses(which, *static_cast<Layout*>(out))) return cuda::kBlasNotSupported;
  *checked = {};
  checked->workspace_bytes = kWorkspaces[static_cast<size_t>(which)];
  return cuda::kBlasSuccess;
}

void require_own(cuda::BlasHandle library, const char* what) {
  const auto device = static_cast<int>(static_cast<int*>(library) - the_libraries.data());
  require_current(device, what, "the handle is another context's");
}

BlasCode multiply(cuda::BlasHandle library, cuda::BlasOperation handle, const void* alpha, const void* a,
                  cuda::BlasLayout a_layout, const void* b, cuda::BlasLayout b_layout, const void* beta,
                  const void* c, cuda::BlasLayout, void* d, cuda::BlasLayout d_layout,
                  const cuda::BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                  cuda::StreamHandle stream) {
  require_context("cublasLtMatmul");
  if (stream == nullptr) return cuda::kBlasInvalidValue;
  require_own(library, "cublasLtMatmul");
  const auto which = static_cast<size_t>(algorithm->data[0]);
  if (which >= kAlgorithms || workspace_bytes < kWorkspaces[which]) return cuda::kBlasInvalidValue;
  Multiplication product{
      *static_cast<Operation*>(handle), {}, {}, *static_cast<Layout*>(d_layout), number(c), number(d), 0, 0};
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  product.a = {*static_cast<Layout*>(a_layout), number(a), product.operation.turn_a != 0};
  product.b = {*static_cast<Layout*>(b_layout), number(b), product.operation.turn_b == 0};
  stream_of(stream, "cublasLtMatmul")->tell([product, which, workspace] {
    product.a.layout.require_read(product.a.data, "cublasLtMatmul, A");
    product.b.layout.require_read(product.b.data, "cublasLtMatmul, B");
    if (product.beta != 0) product.out.require_read(product.c, "cublasLtMatmul, C");
    product.out.require_write(product.d, "cublasLtMatmul, D");
    if (kWorkspaces[which] != 0)
      std::memset(to_write(number(workspace), kWorkspaces[which], "cublasLtMatmul, workspace"), 0x5a,
                  kWorkspaces[which]);
    product.compute();
    runs[which].add_relaxed(1);
    its_clock().advance(std::chrono::microseconds(kTimesUs[which]));
  });
  return cuda::kBlasSuccess;
}

template <class T>
BlasCode destroy(void* made) {
  delete static_cast<T*>(made);
  return cuda::kBlasSuccess;
}

cuda::BlasLtApi make_blas_lt() {
  cuda::BlasLtApi api;
  api.version = [] { return size_t{130101}; };
  api.create = [](cuda::BlasHandle* handle) {
    const int device = current_device("cublasLtCreate");
    return *handle = &the_libraries[static_cast<size_t>(device)], cuda::kBlasSuccess;
  };
  api.destroy = [](cuda::BlasHandle library) {
    return require_own(library, "cublasLtDestroy"), cuda::kBlasSuccess;
  };
  api.operation_create = [](cuda::BlasOperation* made, int compute, int scale) {
    if (!known_compute(compute) || scale != cuda::kBlasF32) return cuda::kBlasInvalidValue;
    return *made = new Operation{.compute = compute}, cuda::kBlasSuccess;
  };
  api.operation_destroy = destroy<Operation>;
  api.operation_set = operation_set;
  api.layout_create = [](cuda::BlasLayout* made, int type, uint64_t rows, uint64_t columns, int64_t line) {
    const auto tall = static_cast<int64_t>(rows);
    if (line < tall) return cuda::kBlasInvalidValue;
    return *made = new Layout{type, tall, static_cast<int64_t>(columns), line}, cuda::kBlasSuccess;
  };
  api.layout_destroy = destroy<Layout>;
  api.layout_set = layout_set;
  api.preference_create = [](cuda::BlasPreference* made) { return *made = new int(0), cuda::kBlasSuccess; };
  api.preference_destroy = destroy<int>;
  api.preference_set = [](cuda::BlasPreference, int, const void*, size_t) { return cuda::kBlasSuccess; };
  api.heuristics = heuristics;
  api.algorithm_check = algorithm_check;
  api.multiply = multiply;
  return api;
}

}  // namespace

const cuda::BlasLtApi& blas_lt() {
  static const cuda::BlasLtApi table = make_blas_lt();
  return table;
}

const Clock& blas_lt_clock() { return its_clock(); }

FewRowsTime::FewRowsTime(Duration each) { few_rows_ns.store_relaxed(each.count()); }
FewRowsTime::~FewRowsTime() { few_rows_ns.store_relaxed(kUsualFewRowsNs); }

TensorTime::TensorTime(Duration each) { tensor_ns.store_relaxed(each.count()); }
TensorTime::~TensorTime() { tensor_ns.store_relaxed(kUsualTensorNs); }

ProductTime::ProductTime(Duration each) { product_ns.store_relaxed(each.count()); }
ProductTime::~ProductTime() { product_ns.store_relaxed(kUsualProductNs); }

void spend(Duration time) { its_clock().advance(time); }

void spend_time_of(const HostKernel& kernel) {
  const std::string_view name = kernel.name;
  const bool multiplies = name.starts_with("heddle_product") || name.starts_with("heddle_convolution_tile") ||
                          name.starts_with("heddle_convolution_direct");
  if (name.starts_with("heddle_product_few")) return spend(Duration(few_rows_ns.load_relaxed()));
  if (name.starts_with("heddle_product_tensor")) return spend(Duration(tensor_ns.load_relaxed()));
  spend(multiplies ? Duration(product_ns.load_relaxed()) : std::chrono::microseconds(1));
}

int64_t blas_lt_runs(int algorithm) { return runs[static_cast<size_t>(algorithm)].load_relaxed(); }

}  // namespace heddle::cuda_double
