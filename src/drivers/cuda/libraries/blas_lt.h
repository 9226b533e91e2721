// blas_lt.h: products of matrices by cuBLASLt on one device.
//
//   What       product() makes a BlasProduct, which a run enqueues into its stream. Of the algorithms that
//              the library proposes for a problem and of our kernels the best is taken, once per problem and
//              device (chosen_once.h).
//   Numbers    Sums are of f32. Factors of f32 are rounded only as a problem's `compute` allows. A row's bits
//              depend on the number of rows: `exact` models do without.
//   Threads    Any.
//   Exit       The library makes static objects when it first computes, and exit() destroys them before
//              what was made earlier. make() lets it compute in each type, before any call can run.
//   Blocks     make(): until the library has computed. product(): for as long as the measurement takes.
//   Lifetime   A product keeps the library's handle, and that the device.
#pragma once

#include <optional>

#include "device/buffer.h"
#include "drivers/cuda/driver/open_device.h"
#include "drivers/cuda/libraries/blas_lt_api.h"
#include "drivers/cuda/libraries/chosen_once.h"
#include "drivers/cuda/libraries/library_call.h"
#include "ir/tensor_type.h"

namespace heddle::cuda {

// out[b, m, n] = relu(alpha * x[b, m, k] y[b, k, n] + beta * c[m, n] + bias[n]), all of one type. A matrix is
// a sequence of lines, its rows, or its columns if it is turned.
struct BlasProblem {
  ir::DType dtype = ir::DType::kF32;
  int compute = kBlasComputeF32;
  int64_t m = 0, n = 0, k = 0, batches = 1;
  bool x_turned = false, y_turned = false, relu = false;
  int64_t x_line = 0, y_line = 0, x_batch = 0, y_batch = 0;  // strides
  float alpha = 1, beta = 0;
  Address bias = 0;       // 0: none
  bool followed = false;  // our kernels do the rest of it

  bool operator==(const BlasProblem&) const = default;
};

struct BlasOperands {
  uint64_t x = 0, y = 0, out = 0, c = 0, workspace = 0;  // c 0: there is none

  static constexpr uint64_t kAlign = 16;
  bool aligned() const { return (x | y | out | c) % kAlign == 0; }  // as products need them
};

struct ProductChoice {
  Ref<const LibraryCall> library = nullptr;  // null: kernels of ours
  std::string own = {};                      // the word of the rival; "": they were not measured
};

class BlasLt;

class BlasProduct final : public LibraryCall {
 public:
  ~BlasProduct() override;

  const char* library() const override { return "cuBLASLt"; }
  uint64_t workspace_bytes() const override { return chosen_.workspace_bytes; }
  bool takes(const void* operands) const override;
  Status run(const void* operands, StreamHandle stream) const override;

 private:
  friend class BlasLt;
  BlasProduct(Ref<const BlasLt> library, const BlasProblem& problem)
      : library_(std::move(library)), problem_(problem) {}
  Status describe();
  Result<std::vector<BlasHeuristic>> proposed() const;  // without any: it cannot
  // The algorithm for this problem, with the workspace that it needs here; nothing where it cannot.
  Result<std::optional<BlasHeuristic>> fitted(const BlasAlgorithm& algorithm) const;
  Status run(const BlasOperands& operands, StreamHandle stream, const BlasHeuristic& by) const;
  BlasCode enqueue(const BlasOperands& operands, StreamHandle stream, const BlasHeuristic& by) const;

  const Ref<const BlasLt> library_;
  const BlasProblem problem_;
  BlasOperation operation_ = nullptr;
  BlasLayout x_ = nullptr, y_ = nullptr, out_ = nullptr;
  BlasHeuristic chosen_{};
};

// What our kernels would do in the place of a product of so many rows.
using BlasRivals = std::function<Rival<BlasOperands>(int64_t rows)>;

class BlasLt : public std::enable_shared_from_this<BlasLt> {
 public:
  static Result<Ref<const BlasLt>> make(const BlasLtApi& api, Ref<const OpenDevice> device,
                                        const LibraryTuning& tuning);
  ~BlasLt();
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;

  std::string version() const;
  std::string describe_choices() const;  // for people
  // Kernels of ours where the library has no algorithm, or the rival, in whose operands c is never 0, wins.
  // `source` lends the memory that is measured with; where it has none, nothing is measured.
  Result<ProductChoice> product(const BlasProblem& problem, const BlasRivals& rivals,
                                device::Source& source) const;

 private:
  friend class BlasProduct;
  struct Hash {
    size_t operator()(const BlasProblem& problem) const;
  };
  using Choices = ChosenOnce<BlasProblem, BlasHeuristic, Hash>;
  using Chosen = Choices::Chosen;
  class Asked;
  BlasLt(const BlasLtApi& api, Ref<const OpenDevice> device, const LibraryTuning& tuning)
      : api_(api),
        device_(std::move(device)),
        trouble_(tuning.warn),
        choices_(tuning, "cublaslt", text(device_->identity(), "; cuBLASLt ", version())) {}

  Status check(BlasCode code, std::string_view what) const;
  Result<std::shared_ptr<BlasProduct>> described(const BlasProblem& problem) const;
  Result<ProductChoice> make_product(const BlasProblem& problem, const BlasRivals& rivals,
                                     device::Source& source) const;
  Result<Chosen> choose(const BlasProduct& product, const BlasRivals& rivals, device::Source& source) const;
  Status compute_once(ir::DType dtype) const;

  const BlasLtApi api_;
  const Ref<const OpenDevice> device_;
  const Trouble trouble_;
  BlasHandle handle_ = nullptr;
  const Choices choices_;
};

}  // namespace heddle::cuda
