// The tensor-core kernel of attention, called as it is: every cut of the work gives the same bits, and values
// are as close to the exact ones as weights of 16 bits allow.
#include "drivers/cuda/kernels/tensor_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace heddle::cuda {
namespace {

struct Problem {
  int64_t queries, keys;
  int heads, sharing, extent, value_extent;
  bool causal;
  float masked;  // what is added where a key is masked; 0: no mask
};

template <Type kType>
class Halves {
 public:
  Halves(int64_t count, uint32_t seed) : words_(static_cast<size_t>(count)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    for (uint16_t& each : words_) each = HalfOf<kType>::template write<float>(normal(random));
  }
  uint64_t at() const { return reinterpret_cast<uint64_t>(words_.data()); }
  double operator[](int64_t i) const {
    return HalfOf<kType>::template read<double>(words_[static_cast<size_t>(i)]);
  }
  const std::vector<uint16_t>& words() const { return words_; }

 private:
  std::vector<uint16_t> words_;
};

bool is_masked(int64_t query, int64_t key) { return (query * 7 + key * 3) % 5 == 0 || query % 11 == 4; }

template <Type kType>
struct Operands {
  Problem problem;
  int64_t key_heads = problem.heads / problem.sharing;
  Halves<kType> q{problem.queries * problem.heads * problem.extent, 1};
  Halves<kType> k{problem.keys * key_heads * problem.extent, 2};
  Halves<kType> v{problem.keys * key_heads * problem.value_extent, 3};
  std::vector<float> mask;

  explicit Operands(const Problem& p) : problem(p) {
    for (int64_t i = 0; p.masked != 0 && i < p.queries * p.keys; ++i)
      mask.push_back(is_masked(i / p.keys, i % p.keys) ? p.masked : 0.25f * static_cast<float>(i % 3));
  }

  // The first `queries` of them, by a kernel with so many warps in a block.
  template <int kWidth, int kParts>
  std::vector<uint16_t> attend(int64_t queries, int warps) const {
    const Problem& on = problem;
    const Halves<kType> out(queries * on.heads * on.value_extent, 4);
    AttentionParams p;
    p.q = q.at();
    p.k = k.at();
    p.v = v.at();
    p.out = out.at();
    p.mask = mask.empty() ? 0 : reinterpret_cast<uint64_t>(mask.data());
    p.type = kType;
    p.mask_type = Type::kF32;
    p.mask_strides[2] = on.keys;
    p.mask_strides[3] = 1;
    p.causal = on.causal ? 1 : 0;
    p.heads = on.heads;
    p.sharing = on.sharing;
    p.extent = on.extent;
    p.value_extent = on.value_extent;
    p.batch = 1;
    p.queries = queries;
    p.keys = on.keys;
    p.q_row = on.heads * on.extent;
    p.k_row = key_heads * on.extent;
    p.v_row = key_heads * on.value_extent;
    p.scale = 1 / std::sqrt(static_cast<double>(on.extent));
    const int threads = warps * kWarp, bytes = TensorShape<kWidth, kParts>::bytes_of(threads);
    const TensorAttention<kType, kWidth, kParts> kernel{p};
    for (int64_t i = 0; i < 3; ++i) {
      HostBlock block(i, 3, threads, static_cast<size_t>(bytes), 17 + static_cast<uint64_t>(warps + i));
      kernel(block);
      CHECK_FALSE(block.overrun());
    }
    return out.words();
  }

  // Whether each element is within u times the range of the values, and the rounding of the result.
  void check_values(const std::vector<uint16_t>& got) const {
    const double u = kType == Type::kF16 ? std::ldexp(1, -11) : std::ldexp(1, -8);
    const Problem& on = problem;
    size_t wrong = 0, at = 0;
    for (int64_t i = 0; i < on.queries; ++i) {
      for (int64_t h = 0; h < on.heads; ++h) {
        const std::vector<double> weights = weights_of(i, h);
        double sum = 0;
        for (const double each : weights) sum += each;
        for (int64_t e = 0; e < on.value_extent; ++e, ++at) {
          double out = 0, least = 0, most = 0;
          for (int64_t j = 0; j < on.keys; ++j) {
            const double value = v[(j * key_heads + h / on.sharing) * on.value_extent + e];
            out += weights[static_cast<size_t>(j)] * value;
            least = std::min(least, value);
            most = std::max(most, value);
          }
          out = sum == 0 ? 0 : out / sum;
          const double error = std::fabs(HalfOf<kType>::template read<double>(got[at]) - out);
          wrong += error <= u * (most - least) + u * std::fabs(out) + 1e-5 ? 0 : 1;
        }
      }
    }
    CHECK(wrong == 0);
  }

 private:
  std::vector<double> weights_of(int64_t i, int64_t h) const {
    std::vector<double> all;
    double greatest = -INFINITY;
    for (int64_t j = 0; j < problem.keys; ++j) {
      double score = 0;
      for (int64_t e = 0; e < problem.extent; ++e)
        score += q[(i * problem.heads + h) * problem.extent + e] *
                 k[(j * key_heads + h / problem.sharing) * problem.extent + e];
      score /= std::sqrt(static_cast<double>(problem.extent));
      // As in f32, where a great bias leaves nothing of a score.
      const float bias = mask.empty() ? 0 : mask[static_cast<size_t>(i * problem.keys + j)];
      if (!mask.empty()) score = std::fabs(bias) > 1e30f ? double{bias} : score + double{bias};
      if (problem.causal && j > i) score = -INFINITY;
      all.push_back(score);
      greatest = std::max(greatest, score);
    }
    for (double& each : all) each = greatest == -INFINITY ? 0 : std::exp(each - greatest);
    return all;
  }
};

constexpr float kLeast = -3.402823466e+38f;

template <Type kType, int kWidth>
void check_cuts(int extent, int value_extent) {
  constexpr int kParts = kPartsOf<kWidth>;
  const Problem all[] = {
      {70, 100, 2, 1, extent, value_extent, false, 0},
      {130, 200, 2, 1, extent, value_extent, true, 0},
      {37, 65, 4, 2, extent, value_extent, true, -INFINITY},
      {33, 130, 3, 3, extent, value_extent, false, kLeast},
      {20, 1, 1, 1, extent, value_extent, false, 0},
      {17, 0, 1, 1, extent, value_extent, false, 0},
      {40, 16, 1, 1, extent, value_extent, true, -1e4f},
  };
  for (const Problem& each : all) {
    CAPTURE(kWidth);
    CAPTURE(each.queries);
    CAPTURE(each.keys);
    CAPTURE(each.causal);
    CAPTURE(each.masked);
    const Operands<kType> operands(each);
    const std::vector<uint16_t> whole = operands.template attend<kWidth, 1>(each.queries, 1);
    operands.check_values(whole);
    for (int warps = 2; warps <= TensorShape<kWidth, 1>::kMostWarps; warps *= 2)
      CHECK(operands.template attend<kWidth, 1>(each.queries, warps) == whole);
    CHECK(operands.template attend<kWidth, kParts>(each.queries, kParts) == whole);
    for (const int64_t queries : {1, 9, 16, 17}) {
      const std::vector<uint16_t> some = operands.template attend<kWidth, 1>(queries, 2),
                                  few = operands.template attend<kWidth, kParts>(queries, kParts);
      CHECK(std::equal(some.begin(), some.end(), whole.begin()));
      CHECK(some == few);
    }
  }
}

TEST_CASE_TEMPLATE("a query's bits do not depend on warps, parts or other queries, and its values are close",
                   T, HalfOf<Type::kF16>, HalfOf<Type::kBF16>) {
  constexpr Type kType = std::is_same_v<T, HalfOf<Type::kF16>> ? Type::kF16 : Type::kBF16;
  check_cuts<kType, 32>(32, 32);
  check_cuts<kType, 32>(23, 30);
  check_cuts<kType, 64>(64, 50);
  check_cuts<kType, 128>(128, 99);
  check_cuts<kType, 128>(100, 128);
}

}  // namespace
}  // namespace heddle::cuda
