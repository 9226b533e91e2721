// What operations of MPSGraph mean: examples worked by hand from Apple's documentation, which
// docs/metal-api.md sums up.
#include "tests/metal_double/graph/meaning_fixture.h"

namespace heddle::metal_double {
namespace {

TEST_CASE("MPSGraph double: elements") {
  const Example examples[] = {
      {"operands broadcast from the right",
       {{{2, 1}, {10, 20}}, {{3}, {1, 2, 3}}},
       [](MPSGraph* g, In in) {
         return [g subtractionWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil];
       },
       {{2, 3}, {9, 8, 7, 19, 18, 17}}},
      {"a minimum loses NaN",
       {{{3}, {kNaN, 1, 2}}, {{3}, {1, kNaN, 3}}},
       [](MPSGraph* g, In in) { return [g minimumWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil]; },
       {{3}, {1, 1, 2}}},
      {"the minimum with NaN propagation keeps it",
       {{{3}, {2, kNaN, 2}}, {{3}, {kNaN, 5, 3}}},
       [](MPSGraph* g, In in) {
         return [g minimumWithNaNPropagationWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil];
       },
       {{3}, {kNaN, kNaN, 2}}},
      {"the sign keeps that of zero, and is 0 of NaN",
       {{{5}, {-0.0, 0.0, -7, 7, kNaN}}},
       [](MPSGraph* g, In in) { return [g signWithTensor:in[0] name:nil]; },
       {{5}, {-0.0, 0.0, -1, 1, 0.0}}},
      {"rint gives halves to even",
       {{{4}, {0.5, 1.5, 2.5, -1.5}}},
       [](MPSGraph* g, In in) { return [g rintWithTensor:in[0] name:nil]; },
       {{4}, {0, 2, 2, -2}}},
      {"comparisons give bool; NaN is not equal to itself",
       {{{2}, {kNaN, 1}}},
       [](MPSGraph* g, In in) { return [g notEqualWithPrimaryTensor:in[0] secondaryTensor:in[0] name:nil]; },
       {{2}, {1, 0}, kBool}},
      {"a half is rounded once, to nearest even",
       {{{2}, {2048, 2048}, kF16}, {{2}, {1, 3}, kF16}},
       [](MPSGraph* g, In in) { return [g additionWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil]; },
       {{2}, {2048, 2052}, kF16}},
      {"integers wrap",
       {{{2}, {100, -128}, kI8}, {{2}, {100, 1}, kI8}},
       [](MPSGraph* g, In in) { return [g additionWithPrimaryTensor:in[0] secondaryTensor:in[1] name:nil]; },
       {{2}, {-56, -127}, kI8}},
      {"a cast to integers cuts",
       {{{3}, {1.75, -1.75, 300}}},
       [](MPSGraph* g, In in) { return [g castTensor:in[0] toType:MPSDataTypeInt8 name:nil]; },
       {{3}, {1, -1, -128}, kI8}},
      {"a reinterpretation scales the last axis",
       {{{1, 2}, {1, -1}, kI32}},
       [](MPSGraph* g, In in) { return [g reinterpretCastTensor:in[0] toType:MPSDataTypeInt8 name:nil]; },
       {{1, 8}, {1, 0, 0, 0, -1, -1, -1, -1}, kI8}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: reductions, totals and orders") {
  const Given x{{2, 3}, {1, 5, 5, 4, 3, 6}};
  const Example examples[] = {
      {"a reduced axis stays, with extent 1",
       {x},
       [](MPSGraph* g, In in) { return [g reductionSumWithTensor:in[0] axes:n({0}) name:nil]; },
       {{1, 3}, {5, 8, 11}}},
      {"negative axes count from the end",
       {x},
       [](MPSGraph* g, In in) { return [g reductionProductWithTensor:in[0] axes:n({-1}) name:nil]; },
       {{2, 1}, {25, 72}}},
      {"a reduction's maximum loses NaN",
       {{{3}, {1, kNaN, 2}}},
       [](MPSGraph* g, In in) { return [g reductionMaximumWithTensor:in[0] axes:n({0}) name:nil]; },
       {{1}, {2}}},
      {"the one that propagates NaN keeps it",
       {{{3}, {1, kNaN, 2}}},
       [](MPSGraph* g, In in) {
         return [g reductionMaximumPropagateNaNWithTensor:in[0] axes:n({0}) name:nil];
       },
       {{1}, {kNaN}}},
      {"argMaximum may give any of equals: the last",
       {x},
       [](MPSGraph* g, In in) { return [g reductionArgMaximumWithTensor:in[0] axis:1 name:nil]; },
       {{2, 1}, {2, 2}, kI32}},
      {"an exclusive total begins with 0",
       {x},
       [](MPSGraph* g, In in) {
         return [g cumulativeSumWithTensor:in[0] axis:1 exclusive:YES reverse:NO name:nil];
       },
       {{2, 3}, {0, 1, 6, 0, 4, 7}}},
      {"a reverse total comes from the end",
       {x},
       [](MPSGraph* g, In in) {
         return [g cumulativeProductWithTensor:in[0] axis:-1 exclusive:NO reverse:YES name:nil];
       },
       {{2, 3}, {25, 25, 5, 72, 18, 6}}},
      {"argSort gives places, the greatest first when it descends",
       {{{4}, {2, kNaN, 5, 2}}},
       [](MPSGraph* g, In in) { return [g argSortWithTensor:in[0] axis:0 descending:YES name:nil]; },
       {{4}, {1, 2, 0, 3}, kI32}},
      {"the variance is divided by the number of elements",
       {{{1, 4}, {1, 2, 3, 6}}, {{1, 1}, {3}}},
       [](MPSGraph* g, In in) { return [g varianceOfTensor:in[0] meanTensor:in[1] axes:n({1}) name:nil]; },
       {{1, 1}, {3.5}}},
      {"epsilon is added to the variance",
       {{{1, 2}, {1, 5}}, {{1, 1}, {3}}, {{1, 1}, {3}}, {{1, 2}, {2, 4}}, {{1, 2}, {10, 20}}},
       [](MPSGraph* g, In in) {
         return [g normalizationWithTensor:in[0]
                                meanTensor:in[1]
                            varianceTensor:in[2]
                               gammaTensor:in[3]
                                betaTensor:in[4]
                                   epsilon:1
                                      name:nil];
       },
       {{1, 2}, {8, 24}}},
      {"softmax of a row of -infinity is NaN",
       {{{2, 2}, {0, 0, -kInfinity, -kInfinity}}},
       [](MPSGraph* g, In in) { return [g softMaxWithTensor:in[0] axis:1 name:nil]; },
       {{2, 2}, {0.5, 0.5, kNaN, kNaN}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: elements elsewhere") {
  const Given x{{2, 3}, {0, 1, 2, 10, 11, 12}};
  const Given cube{{2, 1, 3}, {0, 1, 2, 10, 11, 12}};
  const Example examples[] = {
      {"axis i of a transposed tensor is axis permutation[i]",
       {cube},
       [](MPSGraph* g, In in) { return [g transposeTensor:in[0] permutation:n({2, 0, 1}) name:nil]; },
       {{3, 2, 1}, {0, 10, 1, 11, 2, 12}}},
      {"a slice stops short of its end",
       {x},
       [](MPSGraph* g, In in) {
         return [g sliceTensor:in[0] starts:n({1, 0}) ends:n({2, 3}) strides:n({1, 2}) name:nil];
       },
       {{1, 2}, {10, 12}}},
      {"tensors are joined along the dimension",
       {x, {{2, 1}, {5, 6}}},
       [](MPSGraph* g, In in) { return [g concatTensors:in.tensors dimension:-1 name:nil]; },
       {{2, 4}, {0, 1, 2, 5, 10, 11, 12, 6}}},
      {"a tile repeats the whole",
       {x},
       [](MPSGraph* g, In in) { return [g tileTensor:in[0] withMultiplier:n({1, 2}) name:nil]; },
       {{2, 6}, {0, 1, 2, 0, 1, 2, 10, 11, 12, 10, 11, 12}}},
      {"padding goes left and right of each axis",
       {x},
       [](MPSGraph* g, In in) {
         return [g padTensor:in[0]
             withPaddingMode:MPSGraphPaddingModeConstant
                 leftPadding:n({1, 0})
                rightPadding:n({0, 1})
               constantValue:7
                        name:nil];
       },
       {{3, 4}, {7, 7, 7, 7, 0, 1, 2, 7, 10, 11, 12, 7}}},
      {"a tensor is broadcast from its last axes on",
       {{{2, 1}, {1, 2}}},
       [](MPSGraph* g, In in) { return [g broadcastTensor:in[0] toShape:n({2, 2, 2}) name:nil]; },
       {{2, 2, 2}, {1, 1, 2, 2, 1, 1, 2, 2}}},
      {"only the axes that are named are turned round",
       {x},
       [](MPSGraph* g, In in) { return [g reverseTensor:in[0] axes:n({1}) name:nil]; },
       {{2, 3}, {2, 1, 0, 12, 11, 10}}},
      {"a coordinate is that along its axis",
       {},
       [](MPSGraph* g, In) { return [g coordinateAlongAxis:1 withShape:n({2, 3}) name:nil]; },
       {{2, 3}, {0, 1, 2, 0, 1, 2}, kI32}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: gathers") {
  const Given x{{2, 3}, {0, 1, 2, 10, 11, 12}};
  const Example examples[] = {
      {"the axes of a gather's indices stand in the place of its axis",
       {x, {{1, 2}, {2, 0}, kI32}},
       [](MPSGraph* g, In in) {
         return [g gatherWithUpdatesTensor:in[0] indicesTensor:in[1] axis:1 batchDimensions:0 name:nil];
       },
       {{2, 1, 2}, {2, 0, 12, 10}}},
      {"batch dimensions of a gather are shared",
       {x, {{2, 1}, {2, 0}, kI32}},
       [](MPSGraph* g, In in) {
         return [g gatherWithUpdatesTensor:in[0] indicesTensor:in[1] axis:1 batchDimensions:1 name:nil];
       },
       {{2, 1}, {2, 10}}},
      {"the last axis of gatherND's indices names places",
       {x, {{2, 2}, {1, 0, 0, 2}, kI32}},
       [](MPSGraph* g, In in) {
         return [g gatherNDWithUpdatesTensor:in[0] indicesTensor:in[1] batchDimensions:0 name:nil];
       },
       {{2}, {10, 2}}},
      {"after its batch dimensions",
       {x, {{2, 1}, {1, 2}, kI32}},
       [](MPSGraph* g, In in) {
         return [g gatherNDWithUpdatesTensor:in[0] indicesTensor:in[1] batchDimensions:1 name:nil];
       },
       {{2}, {1, 12}}},
      {"gatherAlongAxis gives 0 for an index outside",
       {x, {{1, 3}, {1, 0, 2}, kI32}},
       [](MPSGraph* g, In in) {
         return [g gatherAlongAxis:0
                 withUpdatesTensor:[g sliceTensor:in[0]
                                           starts:n({0, 0})
                                             ends:n({2, 3})
                                          strides:n({1, 1})
                                             name:nil]
                     indicesTensor:in[1]
                              name:nil];
       },
       {{1, 3}, {10, 1, 0}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

TEST_CASE("MPSGraph double: scatters") {
  const Given x{{2, 3}, {0, 1, 2, 10, 11, 12}};
  const Example examples[] = {
      {"scatterND joins what collides by its mode",
       {x, {{3}, {1, 2, 5}}, {{3, 2}, {0, 1, 0, 1, 1, 2}, kI32}},
       [](MPSGraph* g, In in) {
         return [g scatterNDWithDataTensor:in[0]
                             updatesTensor:in[1]
                             indicesTensor:in[2]
                           batchDimensions:0
                                      mode:MPSGraphScatterModeAdd
                                      name:nil];
       },
       {{2, 3}, {0, 4, 2, 10, 11, 17}}},
      {"scatterND's batch dimensions are shared",
       {x, {{2, 1}, {5, 6}}, {{2, 1, 1}, {2, 0}, kI32}},
       [](MPSGraph* g, In in) {
         return [g scatterNDWithDataTensor:in[0]
                             updatesTensor:in[1]
                             indicesTensor:in[2]
                           batchDimensions:1
                                      mode:MPSGraphScatterModeSet
                                      name:nil];
       },
       {{2, 3}, {0, 1, 5, 6, 11, 12}}},
      {"scatterAlongAxis skips an index outside",
       {x, {{1, 3}, {5, 6, 7}}, {{1, 3}, {1, 0, 2}, kI32}},
       [](MPSGraph* g, In in) {
         return [g scatterAlongAxis:0
                     withDataTensor:in[0]
                      updatesTensor:in[1]
                      indicesTensor:in[2]
                               mode:MPSGraphScatterModeMax
                               name:nil];
       },
       {{2, 3}, {0, 6, 2, 10, 11, 12}}},
  };
  for (const Example& example : examples) check_meaning(example);
}

}  // namespace
}  // namespace heddle::metal_double
