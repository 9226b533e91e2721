#include "drivers/host/machine/shared_loop.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace heddle::host {
namespace {

void nothing(void*, int) {}

std::vector<int> taken_from(SharedLoop& loop, const SharedLoop::Opened& opened, int place, int most) {
  std::vector<int> chunks;
  for (SharedLoop::Chunk chunk; most-- > 0 && loop.take(opened, place, chunk);) chunks.push_back(chunk.index);
  return chunks;
}

TEST_CASE("a thread takes the chunks of its place first, in order, and then those of the places after it") {
  SharedLoop loop(4);
  const SharedLoop::Opened opened = loop.open(nothing, nullptr, 10, 4);
  CHECK(taken_from(loop, opened, 1, 3) == std::vector<int>{2, 3, 4});
  CHECK(taken_from(loop, opened, 6, 3) == std::vector<int>{5, 6, 7});  // place 2 of 4
  CHECK(taken_from(loop, opened, 1, 9) == std::vector<int>{8, 9, 0, 1});
  CHECK(taken_from(loop, opened, 0, 1).empty());
}

TEST_CASE("a place gets the same chunks in loop after loop, whoever took them before") {
  SharedLoop loop(3);
  for (int i = 0; i < 50; ++i) {
    const SharedLoop::Opened opened = loop.open(nothing, nullptr, 3, 3);
    for (const int place : {i % 3, (i + 1) % 3, (i + 2) % 3})
      CHECK(taken_from(loop, opened, place, 1) == std::vector<int>{place});
    loop.close();
  }
}

TEST_CASE("whoever is late takes nothing from a loop that is over, nor from the next one") {
  SharedLoop loop(4);
  for (const int next_chunks : {2, 4, 100}) {
    const SharedLoop::Opened old = loop.open(nothing, nullptr, 4, 4);
    CHECK(taken_from(loop, old, 0, 4).size() == 4);
    CHECK(taken_from(loop, old, 0, 1).empty());
    loop.close();
    CHECK_FALSE(loop.now().open());
    const SharedLoop::Opened next = loop.open(nothing, nullptr, next_chunks, std::min(next_chunks, 4));
    CHECK(taken_from(loop, next, 0, 1) == std::vector<int>{0});
    CHECK(taken_from(loop, old, 0, 1).empty());
    CHECK(taken_from(loop, next, 0, 200).size() == static_cast<size_t>(next_chunks - 1));
    loop.close();
  }
}

// Where a number is 2^31 ahead of a claim that was never renewed, the claim seems to be the newer.
TEST_CASE("places that no loop has used for very long are taken from again") {
  SharedLoop loop(4, 0x80000000U - 200);
  size_t taken = 0;
  for (int i = 0; i < 200; ++i) {
    const SharedLoop::Opened opened = loop.open(nothing, nullptr, 2, 2);
    taken += taken_from(loop, opened, i, 9).size();
    loop.close();
  }
  CHECK(taken == 400);
  const SharedLoop::Opened opened = loop.open(nothing, nullptr, 4, 4);
  CHECK(taken_from(loop, opened, 3, 9) == std::vector<int>{3, 0, 1, 2});
}

}  // namespace
}  // namespace heddle::host
