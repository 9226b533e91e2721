// The line of batches that wait for a lane, beside a plain list of them.
#include "batch/calls/batch_line.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

TEST_CASE("the line keeps its order, and names those that rows may join, whatever comes and goes") {
  Fixture f;
  const RowLayout layout = *RowLayout::make(f.model->inputs(), f.model->outputs(), {}, false);
  const Ref<runtime::Slot> slot = f.runtime->slots().take();
  std::mt19937 random(7);
  BatchLine line;
  std::vector<BatchLine::Batch> wanted;
  const auto agrees = [&] {
    std::vector<BatchLine::Batch> joinable;
    const auto is_joinable = [](const BatchLine::Batch& each) { return !each->alone; };
    std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(joinable), is_joinable);
    return std::equal(wanted.begin(), wanted.end(), line.begin(), line.end()) &&
           std::equal(joinable.begin(), joinable.end(), line.joinable().begin(), line.joinable().end()) &&
           line.empty() == wanted.empty() &&
           (wanted.empty() || (line.front() == wanted.front() && line.back() == wanted.back()));
  };
  uint64_t id = 0;
  for (int step = 0; step < 500; ++step) {
    CAPTURE(step);
    if (wanted.size() < 3 || random() % 2 == 0) {
      const auto made = std::make_shared<FormingBatch>(layout, 2, random() % 3 == 0 ? slot : nullptr);
      made->id = ++id;
      line.push(made);
      wanted.push_back(made);
    } else {
      const auto at = wanted.begin() + static_cast<std::ptrdiff_t>(random() % wanted.size());
      if (random() % 2 == 0) {
        CHECK(line.take((*at)->id) == *at);
      } else {
        line.remove(*at);
      }
      wanted.erase(at);
    }
    REQUIRE(agrees());
  }
  const std::deque<BatchLine::Batch> all = line.take_all();
  CHECK(std::equal(wanted.begin(), wanted.end(), all.begin(), all.end()));
  wanted.clear();
  CHECK(agrees());
}

}  // namespace heddle::batch
