#include "drivers/host/onednn/layout_change.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "drivers/host/onednn/random_numbers_fixture.h"
#include "drivers/host/require_fixture.h"

namespace heddle::host {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kBf16 = dnnl::memory::data_type::bf16;

struct Wanted {
  const char* name;
  Dims dims;
  Tag tag;
  size_t pieces;  // of a team of three
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;
};

struct Changed {
  std::vector<std::byte> inside;
  size_t pieces;
  bool operator==(const Changed&) const = default;
};

Changed changed(const Wanted& wanted, int width) {
  const auto engine = require(make_engine(false, false, nullptr, 1));
  const dnnl::memory::desc inside(wanted.dims, wanted.type, wanted.tag);
  uint64_t scratch = 0;
  const LayoutChange change = require(
      LayoutChange::make(*engine, f32_desc(wanted.dims), inside, LayoutChange::Way::kInput, scratch, width));
  const std::vector<float> outside = random_numbers(elements_of(wanted.dims), 1);
  std::vector<std::byte> arena(scratch, std::byte{0xa5});  // padding has to become 0
  Team team(width);
  Team::Caller caller(team);
  const RunContext context{arena.data(), nullptr, nullptr, caller, nullptr};
  REQUIRE(change.run(context, 0, reinterpret_cast<const std::byte*>(outside.data())).ok());
  const std::byte* const at = change.address(context, 0);
  return {{at, at + inside.get_size()}, change.pieces()};
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

}  // namespace heddle::host
