// Single operators, and types that they may not take.
#include <limits>

#include "limit_differences.h"
#include "limit_probes.h"
#include "limit_trial.h"

namespace heddle::limits {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::string first_of_six_axes(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({3, 2, 2, 2, 2, 2}, [](int64_t i) { return static_cast<float>(i); });
  MPSGraphTensor* y = [trial.graph() reductionSumWithTensor:x axes:@[ @0 ] name:nil];
  return differs(trial.run<float>(y, {1, 2, 2, 2, 2, 2}), [](int64_t i) { return 3 * i + 32 * 3; });
}

template <class T>
std::string reduction(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<T>({4, 9}, [](int64_t i) { return static_cast<T>(i % 9); });
  MPSGraphTensor* sum = [trial.graph() reductionSumWithTensor:x axes:@[ @1 ] name:nil];
  std::string wrong = differs(trial.run<T>(sum, {4, 1}), [](int64_t) { return 36; });
  if (!wrong.empty()) return "sum: " + wrong;
  Trial again;
  MPSGraphTensor* z = again.input<T>({4, 9}, [](int64_t i) { return static_cast<T>(i % 9); });
  MPSGraphTensor* most = [again.graph() reductionMaximumWithTensor:z axes:@[ @1 ] name:nil];
  wrong = differs(again.run<T>(most, {4, 1}), [](int64_t) { return 8; });
  return wrong.empty() ? wrong : "maximum: " + wrong;
}

template <class T>
std::string scattered_maximum(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<T>({4}, [](int64_t) { return T{1}; });
  MPSGraphTensor* updates = trial.input<T>({3}, [](int64_t i) { return static_cast<T>(5 - i); });
  MPSGraphTensor* at = trial.input<int32_t>({3, 1}, [](int64_t i) { return i == 2 ? 3 : 1; });
  MPSGraphTensor* y = [trial.graph() scatterNDWithDataTensor:x
                                               updatesTensor:updates
                                               indicesTensor:at
                                             batchDimensions:0
                                                        mode:MPSGraphScatterModeMax
                                                        name:nil];
  return differs(trial.run<T>(y, {4}), [](int64_t i) { return i == 1 ? 5 : i == 3 ? 3 : 1; });
}

// A permutation whose keys fall from the first to the last.
template <class T>
std::string order(const Shape& shape, int64_t axis, int64_t along) {
  Trial trial;
  int64_t behind = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) behind *= shape[i];
  MPSGraphTensor* x =
      trial.input<T>(shape, [&](int64_t i) { return static_cast<T>(along - i / behind % along); });
  MPSGraphTensor* y = [trial.graph() argSortWithTensor:x axis:axis descending:NO name:nil];
  return differs(trial.run<int32_t>(y, shape), [&](int64_t i) { return along - 1 - i / behind % along; });
}
std::string order_i64(bool) { return order<int64_t>({300}, 0, 300); }
std::string order_i16(bool) { return order<int16_t>({100}, 0, 100); }
std::string order_rows(bool small) { return order<float>({small ? 100 : int64_t{1} << 22, 4}, 1, 4); }
std::string order_first_axis(bool) { return order<float>({3, 2, 2, 2, 2, 2}, 0, 3); }

std::string first_twenty(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({40}, [](int64_t i) { return static_cast<float>(7 * i % 40); });
  NSArray<MPSGraphTensor*>* made = [trial.graph() topKWithSourceTensor:x k:20 name:nil];
  return differs(trial.run<float>([made objectAtIndex : 0], { 20 }), [](int64_t i) { return 39 - i; });
}

std::string ties(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({1000}, [](int64_t i) { return static_cast<float>(i % 2); });
  MPSGraphTensor* y = [trial.graph() argSortWithTensor:x axis:0 descending:NO name:nil];
  return differs(trial.run<int32_t>(y, {1000}),
                 [](int64_t i) { return i < 500 ? 2 * i : 2 * (i - 500) + 1; });
}

std::string scan_first_axis(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({3, 2, 2, 2, 2, 2}, [](int64_t) { return 1.0F; });
  MPSGraphTensor* y = [trial.graph() cumulativeSumWithTensor:x axis:0 exclusive:NO reverse:NO name:nil];
  return differs(trial.run<float>(y, {3, 2, 2, 2, 2, 2}), [](int64_t i) { return i / 32 + 1; });
}

std::string lone_gather(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({1, 5, 1}, [](int64_t i) { return static_cast<float>(10 * i); });
  MPSGraphTensor* at = trial.input<int32_t>({1, 3, 1}, [](int64_t i) { return static_cast<int32_t>(4 - i); });
  MPSGraphTensor* y = [trial.graph() gatherAlongAxis:1 withUpdatesTensor:x indicesTensor:at name:nil];
  return differs(trial.run<float>(y, {1, 3, 1}), [](int64_t i) { return 10 * (4 - i); });
}

std::string joined_bools(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<bool>({3}, [](int64_t i) { return i == 1; });
  MPSGraphTensor* y = [trial.graph() concatTensors:@[ x, x ] dimension:0 name:nil];
  return differs(trial.run<bool>(y, {6}), [](int64_t i) { return i % 3 == 1; });
}

std::string padded_bool(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<bool>({3}, [](int64_t) { return true; });
  MPSGraphTensor* y = [trial.graph() padTensor:x
                               withPaddingMode:MPSGraphPaddingModeConstant
                                   leftPadding:@[ @1 ]
                                  rightPadding:@[ @1 ]
                                 constantValue:0
                                          name:nil];
  return differs(trial.run<bool>(y, {5}), [](int64_t i) { return i % 4 != 0; });
}

std::string sign_i64(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<int64_t>({3}, [](int64_t i) { return (i - 1) * (int64_t{1} << 40); });
  MPSGraphTensor* y = [trial.graph() signWithTensor:x name:nil];
  return differs(trial.run<int64_t>(y, {3}), [](int64_t i) { return i - 1; });
}

std::string division(bool) {
  Trial trial;
  const auto at = [](int64_t i) { return static_cast<int32_t>((1 << 30) + 7 * i - 5); };
  MPSGraphTensor* x = trial.input<int32_t>({64}, at);
  MPSGraphTensor* by = trial.input<int32_t>({64}, [](int64_t i) { return static_cast<int32_t>(1 + i % 3); });
  MPSGraphTensor* y = [trial.graph() divisionWithPrimaryTensor:x secondaryTensor:by name:nil];
  return differs(trial.run<int32_t>(y, {64}), [&](int64_t i) { return at(i) / (1 + i % 3); });
}

std::string softmax_of_nothing(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({1, 4}, [](int64_t) { return static_cast<float>(-kInfinity); });
  MPSGraphTensor* y = [trial.graph() softMaxWithTensor:x axis:1 name:nil];
  return differs(trial.run<float>(y, {1, 4}), [](int64_t) { return 0.0; });
}

// Two windows of three; the second begins two elements before the end.
std::string average_at_the_edge(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({1, 1, 1, 5}, [](int64_t i) { return static_cast<float>(i); });
  MPSGraphPooling4DOpDescriptor* how =
      [MPSGraphPooling4DOpDescriptor descriptorWithKernelSizes:numbers({1, 1, 1, 3})
                                                       strides:numbers({1, 1, 1, 3})
                                                 dilationRates:numbers({1, 1, 1, 1})
                                                 paddingValues:numbers({0, 0, 0, 0, 0, 0, 0, 0})
                                                  paddingStyle:MPSGraphPaddingStyleExplicit];
  [how setCeilMode:YES];
  [how setIncludeZeroPadToAverage:NO];
  MPSGraphTensor* y = [trial.graph() avgPooling4DWithSourceTensor:x descriptor:how name:nil];
  return differs(trial.run<float>(y, {1, 1, 1, 2}), [](int64_t i) { return i == 0 ? 1.0 : 3.5; });
}

// Right is an exception, since it can be caught.
std::string mismatch(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({2}, [](int64_t) { return 1.0F; });
  MPSGraphTensor* y = trial.input<float>({3}, [](int64_t) { return 1.0F; });
  @try {
    [trial.graph() additionWithPrimaryTensor:x secondaryTensor:y name:nil];
  } @catch (NSException*) {
    return {};
  }
  return "a sum of two and three elements is taken";
}

std::string extremes_of_nan(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({2}, [](int64_t i) { return i == 0 ? kNaN : 3.0F; });
  MPSGraphTensor* one = trial.input<float>({2}, [](int64_t) { return 1.0F; });
  MPSGraphTensor* y = [trial.graph() maximumWithPrimaryTensor:x secondaryTensor:one name:nil];
  return differs(trial.run<float>(y, {2}), [](int64_t i) { return i == 0 ? kNaN : 3.0F; });
}

constexpr Probe kProbes[] = {
    {"reduced axes", "the first of six", first_of_six_axes},
    {"narrow reductions", "i8", reduction<int8_t>},
    {"narrow reductions", "u8", reduction<uint8_t>},
    {"narrow reductions", "i16", reduction<int16_t>},
    {"scatter extremes", "maximum of i32", scattered_maximum<int32_t>},
    {"scatter extremes of i64", "maximum of i64", scattered_maximum<int64_t>},
    {"sort types", "i16", order_i16},
    {"long sorts of i64", "300 elements", order_i64},
    {"sort rows", "2^22 rows", order_rows},
    {"top k", "20 of 40", first_twenty},
    {"sort ties", "1000 of two keys", ties},
    {"ordered axes", "sort along the first of six", order_first_axis},
    {"ordered axes", "scan along the first of six", scan_first_axis},
    {"lone gathers", "along the only axis above 1", lone_gather},
    {"bool concatenation", "two of three", joined_bools},
    {"padding of bool", "by one on both sides", padded_bool},
    {"sign of i64", "beyond 32 bits", sign_i64},
    {"integer division", "i32 near 2^30", division},
    {"softmax of nothing", "a row of -infinity", softmax_of_nothing},
    {"averages at the edge", "a window that reaches out", average_at_the_edge},
    {"refusals", "a sum of two and three elements", mismatch},
    {"NaN in extremes", "maximum of NaN and 1", extremes_of_nan},
};

}  // namespace

std::span<const Probe> operator_probes() { return kProbes; }

}  // namespace heddle::limits
