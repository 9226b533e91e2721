#include "ir/ops/cases.h"

namespace heddle::ir {

namespace {

constexpr double kEnd = 9223372036854774784.0;  // the greatest double below 2^63

void add_movement(std::vector<Case>& all) {
  const Sample x = f32({kB, 3}, kSix);
  all.push_back({"Transpose", {x}, {}, {f32({3, kB}, {1, 4, 2, 5, 3, 6})}});
  all.push_back({"Transpose",
                 {f32({1, kB, 3}, kSix)},
                 {{"perm", std::vector<int64_t>{2, 0, 1}}},
                 {f32({3, 1, kB}, {1, 4, 2, 5, 3, 6})}});
  all.push_back(
      {"Concat", {x, f32({kB, 1}, {7, 8})}, {{"axis", i(-1)}}, {f32({kB, 4}, {1, 2, 3, 7, 4, 5, 6, 8})}});
  all.push_back({"Concat",
                 {f32({kB}, {1, 2}), f32({kS}, {3, 4, 5})},
                 {{"axis", i(0)}},
                 {f32({kB + kS}, {1, 2, 3, 4, 5})}});
  all.push_back(
      {"Concat", {dims({kB}), numbers({-1}), dims({kS, 4})}, {{"axis", i(0)}}, {dims({kB, -1, kS, 4})}});
  all.push_back(
      {"Split", {x, numbers({1, 2})}, {{"axis", i(1)}}, {f32({kB, 1}, {1, 4}), f32({kB, 2}, {2, 3, 5, 6})}});
  all.push_back({"Split",
                 {f32({5}, {1, 2, 3, 4, 5})},
                 {{"num_outputs", i(2)}},
                 {f32({3}, {1, 2, 3}), f32({2}, {4, 5})}});
  all.push_back({"Split", {f32({kB * Dim(2)}, {1, 2, 3, 4})}, {}, {f32({kB}, {1, 2}), f32({kB}, {3, 4})}});
  all.push_back({"Split", {dims({kB, kS}), numbers({1, 1})}, {}, {dims({kB}), dims({kS})}});
  all.push_back({"Tile",
                 {f32({kB, 1}, {1, 2}), dims({2, kS})},
                 {},
                 {f32({kB * Dim(2), kS}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2})}});
  all.push_back({"Tile", {dims({kB, 3}), numbers({2})}, {}, {dims({kB, 3, kB, 3})}});
}

void add_slices(std::vector<Case>& all) {
  const Sample x = f32({kB, 3}, kSix);
  const auto one = [](double n) { return numbers({n}); };
  all.push_back({"Slice", {x, one(1), one(3), one(1)}, {}, {f32({kB, 2}, {2, 3, 5, 6})}});
  all.push_back({"Slice", {x, one(1), one(kEnd)}, {}, {f32({kB - 1, 3}, {4, 5, 6})}});
  all.push_back({"Slice", {x, one(-2), one(-1), one(-1)}, {}, {f32({kB, 1}, {2, 5})}});
  all.push_back({"Slice", {x, one(0), one(100), one(1), one(2)}, {}, {f32({kB, 2}, {1, 3, 4, 6})}});
  all.push_back({"Slice", {x, one(-1), one(-kEnd), one(1), one(-1)}, {}, {f32({kB, 3}, {3, 2, 1, 6, 5, 4})}});
  all.push_back({"Slice", {x, one(2), one(0), one(1), one(-1)}, {}, {f32({kB, 2}, {3, 2, 6, 5})}});
  all.push_back(
      {"Slice", {f32({kS}, {1, 2, 3}), one(-1), one(-kEnd), one(0), one(-1)}, {}, {f32({kS}, {3, 2, 1})}});
  all.push_back({"Slice", {f32({5}, {1, 2, 3, 4, 5}), one(0), dims({kS})}, {}, {f32({kS}, {1, 2, 3})}});
  all.push_back({"Slice", {x, one(2), one(1), one(1)}, {}, {f32({kB, 0}, {})}});
  all.push_back({"Slice", {dims({kB, 7, kS}), one(1), one(kEnd)}, {}, {dims({7, kS})}});
  all.push_back(
      {"Slice", {dims({kB, 7, kS}), one(-1), one(-kEnd), one(0), one(-1)}, {}, {dims({kS, 7, kB})}});
  all.push_back(
      {"Pad", {x, numbers({0, 1, 0, 2})}, {}, {f32({kB, 6}, {0, 1, 2, 3, 0, 0, 0, 4, 5, 6, 0, 0})}});
  all.push_back({"Pad", {f32({kB}, {1, 2}), numbers({1, 0}), f32({}, {9})}, {}, {f32({kB + 1}, {9, 1, 2})}});
  all.push_back({"Pad", {x, numbers({-1, 0}), none(), numbers({1})}, {}, {f32({kB, 2}, {2, 3, 5, 6})}});
  all.push_back({"Pad",
                 {f32({3}, {1, 2, 3}), numbers({2, 1})},
                 {{"mode", std::string("reflect")}},
                 {f32({6}, {3, 2, 1, 2, 3, 2})}});
  all.push_back({"Pad",
                 {f32({3}, {1, 2, 3}), numbers({2, 1})},
                 {{"mode", std::string("edge")}},
                 {f32({6}, {1, 1, 1, 2, 3, 3})}});
  all.push_back({"Pad", {dims({kB}), numbers({1, 1}), number(5)}, {}, {dims({5, kB, 5})}});
  const Sample square = f32({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  all.push_back({"Trilu", {square}, {}, {f32({3, 3}, {1, 2, 3, 0, 5, 6, 0, 0, 9})}});
  all.push_back({"Trilu", {square}, {{"upper", i(0)}}, {f32({3, 3}, {1, 0, 0, 4, 5, 0, 7, 8, 9})}});
  all.push_back({"Trilu", {f32({kB, 3}, kSix), number(1)}, {}, {f32({kB, 3}, {0, 2, 3, 0, 0, 6})}});
}

void add_indexing(std::vector<Case>& all) {
  const Sample x = f32({kB, 3}, kSix);
  all.push_back({"Gather", {f32({3, 2}, kSix), i64({kB, 1}, {2, 0})}, {}, {f32({kB, 1, 2}, {5, 6, 1, 2})}});
  all.push_back({"Gather", {x, i32({2}, {-1, 0})}, {{"axis", i(1)}}, {f32({kB, 2}, {3, 1, 6, 4})}});
  all.push_back({"Gather", {x, number(1)}, {{"axis", i(-1)}}, {f32({kB}, {2, 5})}});
  all.push_back({"Gather", {dims({kB, 7, kS}), number(-1)}, {}, {{DType::kI64, {}, {}, {kS}}}});
  all.push_back({"Gather", {dims({kB, 7, kS}), numbers({2, 0})}, {}, {dims({kS, kB})}});
  all.push_back(
      {"GatherElements", {x, i64({kB, 2}, {0, 2, -1, 0})}, {{"axis", i(1)}}, {f32({kB, 2}, {1, 3, 6, 4})}});
  all.push_back({"GatherND", {x, i64({2, 2}, {0, 2, 1, 0})}, {}, {f32({2}, {3, 4})}});
  all.push_back({"GatherND", {x, i64({1, 1}, {-1})}, {}, {f32({1, 3}, {4, 5, 6})}});
  all.push_back({"GatherND", {x, i64({kB, 1}, {2, 0})}, {{"batch_dims", i(1)}}, {f32({kB}, {3, 4})}});
  all.push_back(
      {"OneHot", {i64({kB}, {1, -1}), number(3), f32({2}, {0, 5})}, {}, {f32({kB, 3}, {0, 5, 0, 0, 0, 5})}});
  all.push_back({"OneHot",
                 {i64({kB}, {1, 7}), number(2), f32({2}, {0, 1})},
                 {{"axis", i(0)}},
                 {f32({2, kB}, {0, 0, 1, 0})}});
}

}  // namespace

std::vector<Case> movement_cases() {
  std::vector<Case> all;
  add_movement(all);
  add_slices(all);
  add_indexing(all);
  return all;
}

}  // namespace heddle::ir
