// Reductions. Floats are summed in double and integers in 64 bits, always in the operand's order: the result
// does not depend on threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/elements.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

namespace {

enum class Over : uint8_t { kSum, kSquares, kProduct, kMax, kMin };

template <class T>
using NumberOf = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

template <class N>
N neutral(Over over) {
  using Limits = std::numeric_limits<N>;
  switch (over) {
    case Over::kProduct:
      return 1;
    case Over::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case Over::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return 0;
  }
}

// The greatest of no elements is the least that the type holds, as no number is below it.
template <class Codec>
typename Codec::Number of_nothing(Over over) {
  using N = typename Codec::Number;
  if constexpr (std::is_integral_v<N>) {
    using Limits = std::numeric_limits<typename Codec::Memory>;
    if (over == Over::kMax) return Limits::lowest();
    if (over == Over::kMin) return Limits::max();
  }
  return neutral<N>(over);
}

template <Over over, class N>
HEDDLE_INLINE N join(N total, N x) {
  if constexpr (over == Over::kSum) return plus(total, x);
  if constexpr (over == Over::kSquares) return plus(total, times(x, x));
  if constexpr (over == Over::kProduct) return times(total, x);
  // A NaN wins: neither comparison holds for one that was met before.
  if constexpr (over == Over::kMax) return x > total || x != x ? x : total;
  if constexpr (over == Over::kMin) return x < total || x != x ? x : total;
}

// Sixteen interleaved totals, joined at the end: independent of each other, so the loop is vectorised
// without reassociation.
template <Over over, class T>
HEDDLE_VECTORISED void reduce_run(const void* from, int64_t count, void* total) {
  using N = NumberOf<T>;
  constexpr int64_t kLanes = 16;
  const T* x = static_cast<const T*>(from);
  N lanes[kLanes];
  for (N& lane : lanes) lane = neutral<N>(over);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = join<over, N>(lanes[lane], static_cast<N>(x[i + lane]));
  }
  N sum = *static_cast<N*>(total);
  constexpr Over kJoin = over == Over::kSquares ? Over::kSum : over;
  for (N lane : lanes) sum = join<kJoin, N>(sum, lane);
  for (; i < count; ++i) sum = join<over, N>(sum, static_cast<N>(x[i]));
  *static_cast<N*>(total) = sum;
}

template <Over over, class T>
HEDDLE_VECTORISED void reduce_rows(const void* from, int64_t count, void* totals) {
  using N = NumberOf<T>;
  const T* x = static_cast<const T*>(from);
  N* y = static_cast<N*>(totals);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = join<over, N>(y[i], static_cast<N>(x[i]));
}

using Reduce = void (*)(const void*, int64_t, void*);

template <class T>
Reduce kernel_of(Over over, bool runs) {
  switch (over) {
    case Over::kSum:
      return runs ? reduce_run<Over::kSum, T> : reduce_rows<Over::kSum, T>;
    case Over::kSquares:
      return runs ? reduce_run<Over::kSquares, T> : reduce_rows<Over::kSquares, T>;
    case Over::kProduct:
      return runs ? reduce_run<Over::kProduct, T> : reduce_rows<Over::kProduct, T>;
    case Over::kMax:
      return runs ? reduce_run<Over::kMax, T> : reduce_rows<Over::kMax, T>;
    case Over::kMin:
      return runs ? reduce_run<Over::kMin, T> : reduce_rows<Over::kMin, T>;
  }
  return nullptr;
}

enum class Finish : uint8_t { kNothing, kMean, kRoot };

struct Spec {
  std::string_view op;
  Over over;
  Finish finish;
};
constexpr Spec kSpecs[] = {
    {"ReduceSum", Over::kSum, Finish::kNothing},           {"ReduceMean", Over::kSum, Finish::kMean},
    {"ReduceSumSquare", Over::kSquares, Finish::kNothing}, {"ReduceL2", Over::kSquares, Finish::kRoot},
    {"ReduceProd", Over::kProduct, Finish::kNothing},      {"ReduceMax", Over::kMax, Finish::kNothing},
    {"ReduceMin", Over::kMin, Finish::kNothing},
};

class ReduceStep final : public Step {
 public:
  ReduceStep(const Lowering& lowering, const Spec& spec, const std::vector<bool>& reduced)
      : from_(lowering.inputs[0]), to_(lowering.outputs[0]), spec_(spec), width_(lowering.width) {
    const auto strides = row_major(from_.extents);
    std::vector<int64_t> extents[2], steps[2];
    size_t innermost = 0;
    for (size_t axis = 0; axis < from_.extents.rank(); ++axis) {
      if (from_.extents[axis] == 1) continue;
      const size_t side = reduced[axis] ? 1 : 0;
      extents[side].push_back(from_.extents[axis]);
      steps[side].push_back(strides[axis]);
      innermost = side;
    }
    kept_ = Strided::make(extents[0], steps[0]);
    gone_ = Strided::make(extents[1], steps[1]);
    for (int64_t extent : extents[1]) collected_ *= extent;
    runs_ = innermost == 1;
    // Bools lie like u8; only their greatest and least are taken.
    const ir::DType dtype = from_.dtype == ir::DType::kBool ? ir::DType::kU8 : from_.dtype;
    load_ = is_native(dtype) ? nullptr : load_block(dtype);
    const Kind kind = kind_of(dtype);
    reduce_ = kind == Kind::kF32   ? kernel_of<float>(spec.over, runs_)
              : kind == Kind::kF64 ? kernel_of<double>(spec.over, runs_)
                                   : kernel_of<int64_t>(spec.over, runs_);
  }

  Status run(const RunContext& context) const override {
    split(context.caller, to_.elements(), grain(), work(), width_, [&](int64_t begin, int64_t end, int) {
      with_codec(to_.dtype, [&]<class Codec>(Codec) { reduce<Codec>(context, begin, end); });
    });
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(to_.elements(), grain(), work(), width_, "totals");
  }

 private:
  static constexpr int64_t kTotals = 256;
  int64_t grain() const { return runs_ ? 1 : 16; }
  int64_t work() const { return std::max(from_.elements(), to_.elements()); }

  template <class Codec>
  void reduce(const RunContext& context, int64_t begin, int64_t end) const {
    using N = typename Codec::Number;
    N totals[kTotals];
    typename Codec::Memory* to = context.write<typename Codec::Memory>(to_);
    for (int64_t at = begin; at < end;) {
      const int64_t count = runs_ ? 1 : std::min({kTotals, end - at, kept_.run_at(at)});
      std::fill_n(totals, count, neutral<N>(spec_.over));
      collect(context.read(from_), kept_.offset_of(at), count, totals);
      if (collected_ == 0) std::fill_n(totals, count, of_nothing<Codec>(spec_.over));
      for (int64_t i = 0; i < count; ++i) to[at + i] = Codec::put(finished(totals[i]));
      at += count;
    }
  }

  // Each stretch that lies together: along the reduced axes, or across `count` neighbouring totals.
  void collect(const std::byte* from, int64_t offset, int64_t count, void* totals) const {
    if (collected_ == 0) return;  // a run of no elements has no length to step by
    const int64_t stretch = runs_ ? gone_.run_at(0) : 1;
    const int64_t size = ir::size_of(from_.dtype);
    for (int64_t i = 0; i < collected_; i += stretch) {
      take(from + (offset + gone_.offset_of(i)) * size, runs_ ? stretch : count, totals);
    }
  }

  void take(const std::byte* from, int64_t count, void* totals) const {
    if (load_ == nullptr) {
      reduce_(from, count, totals);
      return;
    }
    alignas(64) std::byte loaded[kRegisterBytes];
    const int64_t size = ir::size_of(from_.dtype);
    // Stretches longer than a block occur along the reduced axes only, where all go to one total.
    for (int64_t at = 0; at < count; at += kBlock) {
      const int64_t part = std::min(kBlock, count - at);
      load_({from + at * size, nullptr, nullptr, loaded, part, 0, 0});
      reduce_(loaded, part, totals);
    }
  }

  template <class N>
  N finished(N total) const {
    if (spec_.finish == Finish::kNothing) return total;
    if (spec_.finish == Finish::kRoot) {
      if constexpr (std::is_integral_v<N>) total = std::max<N>(total, 0);  // squares of integers wrap
      return static_cast<N>(std::sqrt(static_cast<double>(total)));
    }
    if (std::is_integral_v<N> && collected_ == 0) return 0;
    return total / static_cast<N>(collected_);
  }

  Operand from_;
  Operand to_;
  Spec spec_;
  Strided kept_;
  Strided gone_;
  int64_t collected_ = 1;  // elements that make one of the output
  bool runs_ = false;      // the innermost axis is reduced
  BlockKernel load_ = nullptr;
  Reduce reduce_ = nullptr;
  int width_;
};

LoweredStep lower_reduce(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  std::vector<int64_t> axes;
  if (lowering.node.has_input(1)) {
    HEDDLE_TRY_ASSIGN(axes, numbers_of(lowering, 1, "axes"));
  }
  const bool all = axes.empty() && lowering.node.attributes.i64("noop_with_empty_axes") == 0;
  std::vector<bool> reduced(in.rank(), all);
  for (int64_t axis : axes) {
    HEDDLE_TRY_ASSIGN(const size_t normal, ir::normalize_axis(axis, in.rank()));
    reduced[normal] = true;
  }
  const Spec* spec = std::find_if(std::begin(kSpecs), std::end(kSpecs),
                                  [&](const Spec& s) { return lowering.node.is(s.op); });
  return std::unique_ptr<Step>(std::make_unique<ReduceStep>(lowering, *spec, reduced));
}

class ArgStep final : public Step {
 public:
  ArgStep(const Lowering& lowering, size_t axis)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        lanes_(from_.extents, axis),
        greatest_(lowering.node.is("ArgMax")),
        last_(lowering.node.attributes.i64("select_last_index") != 0),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    split(context.caller, to_.elements(), 1, from_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      with_codec(from_.dtype, [&]<class Codec>(Codec) { find<Codec>(context, begin, end); });
    });
    return {};
  }
  Sharing sharing() const override {
    return sharing_of_split(to_.elements(), 1, from_.elements(), width_, "lanes");
  }

 private:
  template <class Codec>
  void find(const RunContext& context, int64_t begin, int64_t end) const {
    const typename Codec::Memory* from = context.read<typename Codec::Memory>(from_);
    int64_t* to = context.write<int64_t>(to_);
    for (int64_t lane = begin; lane < end; ++lane) {
      const auto* row = from + lane / lanes_.inner * lanes_.extent * lanes_.inner + lane % lanes_.inner;
      int64_t best = 0;
      auto value = Codec::get(row[0]);
      for (int64_t a = 1; a < lanes_.extent; ++a) {
        const auto x = Codec::get(row[a * lanes_.inner]);
        const bool better = greatest_ ? exceeds(x, value) : exceeds(value, x);
        const bool worse = greatest_ ? exceeds(value, x) : exceeds(x, value);
        if (!better && (!last_ || worse)) continue;
        best = a;
        value = x;
      }
      to[lane] = best;
    }
  }

  Operand from_;
  Operand to_;
  Lanes lanes_;
  bool greatest_;
  bool last_;
  int width_;
};

LoweredStep lower_arg(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<ArgStep>(lowering, axis));
}

}  // namespace

std::span<const LoweringEntry> reduction_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"ReduceSum", lower_reduce}, {"ReduceMean", lower_reduce}, {"ReduceSumSquare", lower_reduce},
      {"ReduceL2", lower_reduce},  {"ReduceProd", lower_reduce}, {"ReduceMax", lower_reduce},
      {"ReduceMin", lower_reduce}, {"ArgMax", lower_arg},        {"ArgMin", lower_arg},
  };
  return kEntries;
}

}  // namespace heddle::host
