#include "device/view.h"

#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <vector>

namespace heddle::device {
namespace {

// Where element `index` (row-major) of a view lies, in elements from its data.
int64_t position(const View& view, int64_t index) {
  int64_t at = 0;
  for (size_t axis = view.extents.rank(); axis-- > 0;) {
    at += index % view.extents[axis] * view.strides[axis];
    index /= view.extents[axis];
  }
  return at;
}

struct Window {
  ir::Extents extents, from, to;
  int64_t from_start, to_start;
};

const std::vector<Window> kWindows = {
    {{}, {}, {}, 0, 0},
    {{5}, {1}, {1}, 0, 0},
    {{5}, {-1}, {2}, 4, 0},
    {{2, 3}, {1, 2}, {3, 1}, 0, 0},
    {{2, 3, 4}, {12, 4, 1}, {12, 4, 1}, 0, 0},
    {{2, 3, 4}, {0, 4, 1}, {1, 2, 6}, 0, 0},
    {{3, 1, 2, 2}, {8, 99, 4, 1}, {4, -5, 2, 1}, 3, 1},
    {{4, 3}, {-3, -1}, {3, 1}, 11, 0},
    {{2, 2, 2, 2}, {1, 2, 4, 8}, {8, 4, 2, 1}, 0, 0},
};

template <class T>
void check_copies(ir::DType dtype) {
  for (const Window& w : kWindows) {
    std::vector<T> source(64), target(64, T(77)), wanted(64, T(77));
    std::iota(source.begin(), source.end(), T(1));
    const View from{nullptr, 0,         reinterpret_cast<std::byte*>(source.data() + w.from_start),
                    dtype,   w.extents, w.from};
    const View to{nullptr, 0,         reinterpret_cast<std::byte*>(target.data() + w.to_start),
                  dtype,   w.extents, w.to};
    for (int64_t i = 0; i < w.extents.elements(); ++i) {
      wanted[static_cast<size_t>(w.to_start + position(to, i))] =
          source[static_cast<size_t>(w.from_start + position(from, i))];
    }
    copy_view(from, to);
    CHECK(target == wanted);
  }
}

TEST_CASE("a copy moves each element from its place to its place and touches nothing else") {
  check_copies<uint8_t>(ir::DType::kU8);
  check_copies<int16_t>(ir::DType::kI16);
  check_copies<float>(ir::DType::kF32);
  check_copies<int64_t>(ir::DType::kI64);
}

TEST_CASE("a copy of no elements touches nothing") {
  const View nothing{nullptr, 0, nullptr, ir::DType::kF32, {3, 0}, {1, 1}};
  copy_view(nothing, nothing);
  fill_view(nothing, 1.0);
}

TEST_CASE("a fill converts its value and respects strides") {
  std::vector<int16_t> target(8, 0);
  fill_view({nullptr, 0, reinterpret_cast<std::byte*>(target.data()), ir::DType::kI16, {2, 2}, {4, 2}}, 5);
  CHECK(target == std::vector<int16_t>{5, 0, 5, 0, 5, 0, 5, 0});
  std::vector<uint16_t> halves(2, 0);
  fill_view({nullptr, 0, reinterpret_cast<std::byte*>(halves.data()), ir::DType::kF16, {2}, {1}}, 1.0);
  CHECK(halves == std::vector<uint16_t>{0x3c00, 0x3c00});
}

TEST_CASE("a view is contiguous when its strides are, those of axes of one element aside") {
  struct Case {
    ir::Extents extents, strides;
    bool contiguous;
  };
  const std::array<Case, 8> cases = {{{{2, 3}, {3, 1}, true},
                                      {{2, 3}, {1, 2}, false},
                                      {{2, 3}, {6, 2}, false},
                                      {{1, 3}, {99, 1}, true},
                                      {{2, 1, 3}, {3, -7, 1}, true},
                                      {{2, 3}, {0, 1}, false},
                                      {{0, 3}, {5, 5}, true},
                                      {{}, {}, true}}};
  for (const Case& c : cases) {
    const View view{nullptr, 0, nullptr, ir::DType::kF32, c.extents, c.strides};
    CHECK(view.is_contiguous() == c.contiguous);
  }
  CHECK(contiguous_strides({2, 3, 4}) == ir::Extents{12, 4, 1});
}

}  // namespace
}  // namespace heddle::device
