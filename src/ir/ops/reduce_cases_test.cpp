#include <limits>

#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

Case last_axis(std::string op, std::vector<double> y) {
  return {
      std::move(op), {f32({kB, 3}, {1, 2, 3, 4, 5, -6}), numbers({-1})}, {}, {f32({kB, 1}, std::move(y))}};
}
Case whole(std::string op, double y) {
  return {std::move(op), {f32({kB, 3}, {1, 2, 3, 4, 5, -6})}, {{"keepdims", i(0)}}, {f32({}, {y})}};
}

}  // namespace

std::vector<Case> reduce_cases() {
  const Sample x = f32({kB, 3}, {1, 3, 3, 4, -5, 4});
  return {
      last_axis("ReduceSum", {6, 3}),
      last_axis("ReduceMean", {2, 1}),
      last_axis("ReduceMax", {3, 5}),
      last_axis("ReduceMin", {1, -6}),
      last_axis("ReduceProd", {6, -120}),
      last_axis("ReduceL2", {3.74165739, 8.77496439}),
      last_axis("ReduceSumSquare", {14, 77}),
      whole("ReduceSum", 9),
      whole("ReduceMean", 1.5),
      whole("ReduceMax", 5),
      whole("ReduceMin", -6),
      whole("ReduceSumSquare", 91),
      {"ReduceSum", {x, numbers({0})}, {{"keepdims", i(0)}}, {f32({3}, {5, -2, 7})}},
      {"ReduceSum", {x}, {{"noop_with_empty_axes", i(1)}}, {f32({kB, 3}, {1, 3, 3, 4, -5, 4})}},
      {"ReduceSumSquare",
       {x, numbers({})},
       {{"noop_with_empty_axes", i(1)}},
       {f32({kB, 3}, {1, 9, 9, 16, 25, 16})}},
      {"ReduceSum", {f32({kB, 0}, {}), numbers({1})}, {}, {f32({kB, 1}, {0, 0})}},
      {"ReduceMax", {f32({kB, 0}, {}), numbers({1})}, {}, {f32({kB, 1}, {-kInf, -kInf})}},
      {"ReduceMin", {i32({1, 0}, {}), numbers({1})}, {}, {i32({1, 1}, {2147483647})}},
      {"ReduceMax", {f32({3}, {1, kNaN, 2})}, {}, {f32({1}, {kNaN})}},
      {"ReduceMean", {i64({3}, {1, 2, 5})}, {}, {i64({1}, {2})}},
      {"ReduceMax", {flags({2}, {0, 1})}, {}, {flags({1}, {1})}},
      {"ReduceProd", {dims({kB, 4, kS})}, {{"keepdims", i(0)}}, {{DType::kI64, {}, {}, {kB * kS * Dim(4)}}}},
      {"ReduceSum", {dims({kB, 4, kS})}, {}, {dims({kB + kS + 4})}},
      // Beyond i64 and back: it wraps, as no Dim does.
      {"ReduceSum", {i64({3}, {0x1p62, 0x1p62, -0x1p62})}, {}, {i64({1}, {0x1p62})}},
      {"ReduceL2", {i64({2}, {0x1p31, 0x1p31})}, {}, {i64({1}, {0})}},
      {"ArgMax", {x}, {{"axis", i(1)}}, {i64({kB, 1}, {1, 0})}},
      {"ArgMax",
       {x},
       {{"axis", i(-1)}, {"keepdims", i(0)}, {"select_last_index", i(1)}},
       {i64({kB}, {2, 2})}},
      {"ArgMin", {x}, {{"axis", i(0)}, {"keepdims", i(0)}}, {i64({3}, {0, 1, 0})}},
      {"TopK", {x, numbers({2})}, {}, {f32({kB, 2}, {3, 3, 4, 4}), i64({kB, 2}, {1, 2, 0, 2})}},
      {"TopK", {x, numbers({1})}, {{"largest", i(0)}}, {f32({kB, 1}, {1, -5}), i64({kB, 1}, {0, 1})}},
      {"CumSum", {x, number(1)}, {}, {f32({kB, 3}, {1, 4, 7, 4, -1, 3})}},
      {"CumSum", {x, number(-1)}, {{"exclusive", i(1)}}, {f32({kB, 3}, {0, 1, 4, 0, 4, -1})}},
      {"CumSum", {i64({kS}, {1, 2, 3}), number(0)}, {{"reverse", i(1)}}, {i64({kS}, {6, 5, 3})}},
  };
}

}  // namespace heddle::ir
