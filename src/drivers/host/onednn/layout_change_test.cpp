#include "drivers/host/onednn/layout_change.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/onednn/random_numbers_fixture.h"
#include "drivers/host/require_fixture.h"

namespace heddle::host {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32, kBf16 = dnnl::memory::data_type::bf16;

struct Wanted {
  const char* name;
  Dims dims;
  Tag tag;
  size_t pieces;  // of a team of three
  dnnl::memory::data_type type = kF32;
};

struct Changed {
  std::vector<std::byte> inside;
  size_t pieces;
  bool operator==(const Changed&) const = default;
};

Changed changed(const dnnl::memory::desc& outside, const dnnl::memory::desc& inside, const void* brought,
                int width) {
  const auto engine = require(make_engine(false, false, nullptr, 1));
  uint64_t scratch = 0;
  const LayoutChange change =
      require(LayoutChange::make(*engine, outside, inside, LayoutChange::Way::kInput, scratch, width));
  std::vector<std::byte> arena(scratch, std::byte{0xa5});  // padding has to become 0
  Team team(width);
  Team::Caller caller(team);
  const RunContext context{arena.data(), nullptr, nullptr, caller, nullptr};
  REQUIRE(change.run(context, 0, static_cast<const std::byte*>(brought)).ok());
  const std::byte* const at = change.address(context, 0);
  return {{at, at + inside.get_size()}, change.pieces()};
}

Changed changed(const Wanted& wanted, int width) {
  const std::vector<float> outside = random_numbers(elements_of(wanted.dims), 1);
  return changed(f32_desc(wanted.dims), {wanted.dims, wanted.type, wanted.tag}, outside.data(), width);
}

std::vector<uint16_t> narrow_numbers(ir::DType dtype, const Dims& dims) {
  const std::vector<float> wide = random_numbers(elements_of(dims), 1);
  std::vector<uint16_t> narrow(wide.size());
  const auto round = dtype == ir::DType::kF16 ? f32_to_f16 : f32_to_bf16;
  round(wide.data(), narrow.data(), static_cast<int64_t>(wide.size()));
  return narrow;
}

}  // namespace

TEST_CASE("a large change of layout is cut between blocks and gives the bytes of a whole one") {
  for (const Wanted& wanted : {Wanted{"nothing in blocks", {96, 40, 3, 3}, Tag::acdb, 3},
                               Wanted{"blocks of 16 outputs", {96, 40, 3, 3}, Tag::Acdb16a, 3},
                               Wanted{"blocks of 16 inputs and outputs", {96, 48, 3, 3}, Tag::ABcd16b16a, 3},
                               Wanted{"two blocks of outputs", {32, 128, 3, 3}, Tag::Acdb16a, 3},
                               Wanted{"a padded block of outputs", {100, 40, 3, 3}, Tag::Acdb16a, 3},
                               Wanted{"a padded block of inputs", {96, 40, 3, 3}, Tag::ABcd16b16a, 3},
                               Wanted{"pairs of inputs", {96, 40, 3, 3}, Tag::ABcd8b16a2b, 3, kBf16},
                               Wanted{"few elements", {16, 16, 3, 3}, Tag::Acdb16a, 1}}) {
    CAPTURE(std::string(wanted.name));
    const Changed whole = changed(wanted, 1), shared = changed(wanted, 3);
    CHECK(whole.pieces == 1);
    CHECK(shared.pieces == wanted.pieces);
    CHECK(shared.inside == whole.inside);
  }
}

TEST_CASE("sixteen bits are widened a piece at a time and give the bytes that f32 gives") {
  struct Given {
    const char* name;
    Dims dims;
    Tag tag;
    ir::DType dtype;
    size_t pieces;  // for one core, whose cache they have to fit
  };
  for (const Given& given : {Given{"outputs", {128, 128, 3, 3}, Tag::Acdb16a, ir::DType::kF16, 2},
                             Given{"inputs", {100, 320, 1, 9}, Tag::ABcd16b16a, ir::DType::kBF16, 4},
                             Given{"a padded block", {100, 150, 3, 5}, Tag::ABcd16b16a, ir::DType::kF16, 3},
                             Given{"nothing in blocks", {3, 64, 60, 20}, Tag::acdb, ir::DType::kBF16, 3},
                             Given{"two large images", {2, 8, 224, 224}, Tag::acdb, ir::DType::kF16, 12},
                             Given{"few elements", {5, 7, 3, 3}, Tag::acdb, ir::DType::kF16, 1}}) {
    CAPTURE(std::string(given.name));
    const std::vector<uint16_t> narrow = narrow_numbers(given.dtype, given.dims);
    std::vector<float> wide(narrow.size());
    half_to_f32(given.dtype, narrow.data(), wide.data(), static_cast<int64_t>(wide.size()));
    const dnnl::memory::desc inside(given.dims, kF32, given.tag);
    const Changed wanted = changed(f32_desc(given.dims), inside, wide.data(), 1);
    const dnnl::memory::desc outside(given.dims, float_type(given.dtype), dense_strides(given.dims));
    const Changed one = changed(outside, inside, narrow.data(), 1);
    CHECK(one.pieces == given.pieces);
    CHECK(one.inside == wanted.inside);
    CHECK(changed(outside, inside, narrow.data(), 3).inside == wanted.inside);
  }
}

}  // namespace heddle::host
