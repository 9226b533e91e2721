#include "drivers/host/onednn/few_rows.h"

#include <algorithm>
#include <dnnl.hpp>

#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/pieces.h"

namespace heddle::host {
namespace {

constexpr int64_t kCacheLine = 16;  // floats

class FewRowsStep final : public Step {
 public:
  FewRowsStep(const FewRows& problem, int width) : p_(problem), columns_(problem.n) {
    if (2 * p_.m * p_.k * p_.n < kWorthSharing) return;
    const int64_t lines = (p_.n + width * kCacheLine - 1) / (width * kCacheLine);
    columns_ = lines * kCacheLine;
  }

  Status run(const RunContext& context) const override {
    if (pieces() == 1) return run_piece(context, 0);
    return for_each_piece(context, pieces(), "a matrix product",
                          [&](size_t i) { return run_piece(context, static_cast<int64_t>(i)); });
  }
  std::string path() const override {
    return text("oneDNN sgemm", pieces() == 1 ? "" : text(" in ", pieces(), " pieces"));
  }

 private:
  size_t pieces() const { return static_cast<size_t>((p_.n + columns_ - 1) / columns_); }
  Status run_piece(const RunContext& context, int64_t piece) const {
    const int64_t column = piece * columns_, columns = std::min(columns_, p_.n - column);
    const float* w = context.read<float>(p_.w) + column * (p_.trans_w ? p_.k : 1);
    float* y = context.write<float>(p_.y) + column;
    if (p_.bias.present()) {
      const float* bias = context.read<float>(p_.bias) + column;
      for (int64_t row = 0; row < p_.m; ++row) std::copy_n(bias, columns, y + row * p_.n);
    }
    const dnnl_status_t status =
        dnnl_sgemm('N', p_.trans_w ? 'T' : 'N', p_.m, columns, p_.k, 1.0f, context.read<float>(p_.x), p_.k, w,
                   p_.trans_w ? p_.k : p_.n, p_.bias.present() ? 1.0f : 0.0f, y, p_.n);
    return onednn_status(status, "a product of a few rows");
  }

  FewRows p_;
  int64_t columns_;  // of a piece
};

}  // namespace

std::unique_ptr<Step> few_rows_step(const FewRows& problem, int width) {
  return std::make_unique<FewRowsStep>(problem, width);
}

}  // namespace heddle::host
