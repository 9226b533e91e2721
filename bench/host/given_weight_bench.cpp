// given_weight_bench.cpp: what does a product cost whose weight [n, k] the caller brings with each call?
//
//   Question  A PyTorch operator's weight is an input of its model: nothing of it is packed beforehand. What
//             do Heddle's ways take on one core, beside oneDNN's matmul and its sgemm with that weight?
//   Read as   Nanoseconds a product, median and quartiles, the three in turn; then matmul / Heddle and
//             sgemm / Heddle. Each product takes the next of sixteen weights, as layers of a model do.
//   Checked   One row and one column of every product, against sums in double, before anything is timed.
//
// usage: given_weight_bench [--json FILE]
#include <array>
#include <cmath>
#include <dnnl.hpp>
#include <memory>

#include "bench/base/rounds.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/primitive.h"
#include "ir/builder.h"

namespace heddle::bench {
namespace {

using namespace heddle::host;

constexpr size_t kWeights = 16;
constexpr uint64_t kProducts = 48;
constexpr int kRounds = 9;

struct Shape {
  int64_t m, k, n;
};
constexpr std::array<std::array<int64_t, 2>, 4> kLayers = {
    {{384, 384}, {384, 1536}, {1536, 384}, {1024, 1024}}};
constexpr int64_t kRows[] = {1, 4, 8, 16, 32, 64, 128, 256};

float x_at(int64_t i, int64_t k) { return static_cast<float>((i + k) % 7 - 3); }
float w_at(size_t which, int64_t j, int64_t k) {
  return static_cast<float>((3 * k + j + static_cast<int64_t>(which)) % 5 - 2) / 4;
}

device::View view_of(ir::Tensor& tensor) {
  return device::View::contiguous(static_cast<std::byte*>(tensor.mutable_data()), tensor.dtype(),
                                  tensor.extents());
}

class Subject {
 public:
  explicit Subject(const Shape& shape)
      : s_(shape),
        x_(ir::Tensor::zeros(ir::DType::kF32, {shape.m, shape.k})),
        y_(ir::Tensor::zeros(ir::DType::kF32, {shape.m, shape.n})) {
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t k = 0; k < s_.k; ++k) x_.set(i * s_.k + k, x_at(i, k));
    }
    for (size_t which = 0; which < kWeights; ++which) {
      weights_.push_back(ir::Tensor::zeros(ir::DType::kF32, {s_.n, s_.k}));
      for (int64_t j = 0; j < s_.n; ++j) {
        for (int64_t k = 0; k < s_.k; ++k) weights_.back().set(j * s_.k + k, w_at(which, j, k));
      }
    }
    prepare_heddle();
    prepare_matmul();
  }

  void add_to(std::vector<Case>& cases) {
    const std::string of = text(" ", s_.m, " x ", s_.k, " x ", s_.n);
    const auto add = [&](const char* name, void (Subject::*run)(size_t)) {
      check(name + of, run);
      cases.push_back({name + of, 1, kProducts, [this, run](int) {
                         const OmpScope team_of_one;
                         for (uint64_t i = 0; i < kProducts; ++i) (this->*run)(i % kWeights);
                         return kProducts;
                       }});
    };
    add("heddle", &Subject::run_heddle);
    add("matmul", &Subject::run_matmul);
    add("sgemm", &Subject::run_sgemm);
  }

 private:
  void prepare_heddle() {
    ir::Builder b;
    const ir::ValueId x = b.input("x", {ir::DType::kF32, {s_.m, s_.k}}),
                      w = b.input("w", {ir::DType::kF32, {s_.n, s_.k}});
    b.output(require(b.node("Linear", {x, w}, {{"trans_w", int64_t{1}}})));
    HostOptions options;
    options.threads = 1;
    device_ = require(make_host_device(options));
    const auto module =
        require(device_->load(require(b.take()), {}, device::plain_source(*device_), NoLocksHeld()));
    program_ = require(module->compile(std::vector<ir::Extents>{{s_.m, s_.k}, {s_.n, s_.k}}, NoLocksHeld()));
    arena_ = require(device::arena_for(*device_, *program_));
    queue_ = require(device_->make_queue(NoLocksHeld()));
  }
  void prepare_matmul() {
    using Desc = dnnl::matmul::primitive_desc;
    engine_ = require(make_engine(false));
    const Desc desc(engine_->cpu, f32_desc({s_.m, s_.k}), f32_desc({s_.k, s_.n}, {1, s_.k}),
                    f32_desc({s_.m, s_.n}), engine_->attributes());
    matmul_ = require(Primitive::make<Desc, dnnl::matmul>(*engine_, desc,
                                                          {{DNNL_ARG_SRC, desc.src_desc()},
                                                           {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                           {DNNL_ARG_DST, desc.dst_desc()}}));
    scratch_ = require(AlignedBytes::make(matmul_->scratch_bytes() + 64, uint64_t{1} << 40));
  }

  void run_heddle(size_t which) {
    device::CommandList list;
    list.run(program_, arena_, {view_of(x_), view_of(weights_[which])}, {view_of(y_)});
    end_unless(queue_->submit(list, ++value_, NoLocksHeld()).ok());
  }
  void run_matmul(size_t which) {
    const std::array<const void*, 4> addresses = {x_.data(), weights_[which].data(), y_.data(),
                                                  scratch_.data()};
    end_unless(matmul_->run(addresses).ok());
  }
  void run_sgemm(size_t which) {
    const auto floats = [](ir::Tensor& tensor) { return static_cast<float*>(tensor.mutable_data()); };
    end_unless(dnnl_sgemm('N', 'T', s_.m, s_.n, s_.k, 1, floats(x_), s_.k, floats(weights_[which]), s_.k, 0,
                          floats(y_), s_.n) == dnnl_success);
  }

  void check(const std::string& name, void (Subject::*run)(size_t)) {
    const OmpScope team_of_one;
    for (size_t which = 0; which < kWeights; ++which) {
      (this->*run)(which);
      for (int64_t j = 0; j < s_.n; ++j) check_one(name, which, s_.m - 1, j);
      for (int64_t i = 0; i < s_.m; ++i) check_one(name, which, i, s_.n / 2);
    }
  }
  void check_one(const std::string& name, size_t which, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < s_.k; ++k) sum += double{x_at(i, k)} * double{w_at(which, j, k)};
    if (std::fabs(y_.get(i * s_.n + j) - sum) <= 1e-3) return;
    std::fprintf(stderr, "%s: y[%lld, %lld] is %g, not %g\n", name.c_str(), static_cast<long long>(i),
                 static_cast<long long>(j), y_.get(i * s_.n + j), sum);
    std::exit(1);
  }
  static void end_unless(bool holds) {
    if (holds) return;
    std::fprintf(stderr, "a product failed\n");
    std::exit(1);
  }

  const Shape s_;
  ir::Tensor x_, y_;
  std::vector<ir::Tensor> weights_;
  Ref<device::Device> device_;
  Ref<const device::Program> program_;
  Ref<device::Buffer> arena_;
  std::unique_ptr<device::Queue> queue_;
  uint64_t value_ = 0;
  Ref<const Engine> engine_;
  Ref<const Primitive> matmul_;
  AlignedBytes scratch_;
};

int run(int argc, char** argv) {
  std::vector<Figure> all;
  for (const auto& [k, n] : kLayers) {
    for (const int64_t m : kRows) {
      Subject subject({m, k, n});
      std::vector<Case> cases;
      subject.add_to(cases);
      const std::vector<Figure> figures = compare(cases, kRounds);
      print(figures);
      print_ratio(figures[0], figures[1]);
      print_ratio(figures[0], figures[2]);
      all.insert(all.end(), figures.begin(), figures.end());
    }
  }
  write_json(argc, argv, "given_weight", all);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
