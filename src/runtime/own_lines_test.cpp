// Words that different threads write lie on different cache lines: private parts, which an explicit
// instantiation may name.
#include <doctest/doctest.h>

#include <string>
#include <typeinfo>
#include <vector>

#include "base/own_count.h"
#include "base/read_epoch.h"
#include "runtime/admission/governor.h"
#include "runtime/admission/lone_door.h"
#include "runtime/admission/owner_words.h"
#include "runtime/lane.h"
#include "runtime/memory/allocator.h"
#include "runtime/streams/stream_pool.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

constexpr size_t kLine = 64;

struct Owned {  // by one thread of several; its neighbours in an array are the others'
  std::string name;
  size_t alignment, bytes;
};
std::vector<Owned>& all_owned() {
  static std::vector<Owned> all;
  return all;
}
template <class Part>
struct OneOfMany {
  static const bool is_listed;
};
template <class Part>
const bool OneOfMany<Part>::is_listed = [] {
  all_owned().push_back({typeid(Part).name(), alignof(Part), sizeof(Part)});
  return true;
}();

template struct OneOfMany<StreamPool::Place>;
template struct OneOfMany<OwnerWords::Word>;
template struct OneOfMany<LoneDoor::Lane>;
template struct OneOfMany<Governor::LaneState>;
template struct OneOfMany<Lanes::Padded>;
template struct OneOfMany<Allocator::PaddedStripe>;
template struct OneOfMany<ReadEpoch::Stripe>;
template struct OneOfMany<Keeps<Allocator>>;

TEST_CASE("a word that one thread writes fills a cache line of its own, whatever lies beside it") {
  CHECK(all_owned().size() == 8);
  for (const Owned& each : all_owned()) {
    CAPTURE(each.name);
    CHECK(each.alignment % kLine == 0);
    CHECK(each.bytes % kLine == 0);
  }
}

uintptr_t line_of(const void* word) { return reinterpret_cast<uintptr_t>(word) / kLine; }

// Those who share a stream count there; those who lease one of their own read the other word.
bool counts_of_sharers_lie_apart(const StreamPool& pool);
template <auto Read, auto Written>
struct Words {
  friend bool counts_of_sharers_lie_apart(const StreamPool& pool) {
    return line_of(&(pool.*Read)) != line_of(&(pool.*Written));
  }
};
template struct Words<&StreamPool::changes_, &StreamPool::joined_>;

TEST_CASE("what threads write that share a stream lies on no line that those read who have their own") {
  const auto device = std::make_shared<test::TestDevice>();
  const auto roster = std::make_shared<Roster>(device, Clock::real());
  CHECK(counts_of_sharers_lie_apart(**StreamPool::make(roster, {})));
}

}  // namespace
}  // namespace heddle::runtime
