// What our work and another library's owe each other over one view (runtime.h, Other libraries).
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using device::Point;
using device::View;

struct OtherStream {
  Point given;  // reached when all that it was given is over
  std::vector<Point> holds;
};

// Whose streams of other libraries are an OtherStream each.
class Importing final : public test::TestDevice {
 public:
  using TestDevice::TestDevice;
  Result<Point> import_stream(void* stream, NoLocksHeld) override {
    return static_cast<OtherStream*>(stream)->given;
  }
  Result<std::unique_ptr<device::Memory>> import_memory(const device::ForeignMemory& memory,
                                                        NoLocksHeld proof) override {
    return allocate(memory.bytes, device::MemoryKind::device, proof);
  }
  Status hold_stream(void* stream, const Point& point, NoLocksHeld) override {
    static_cast<OtherStream*>(stream)->holds.push_back(point);
    return {};
  }
};

struct Other : device::Queue {
  static device::Completion right() { return completion(); }
};

Point never_reached() { return {std::make_shared<device::Timeline>(), 1}; }

bool waits_for(const View& view, bool to_write, const Point& point) {
  std::vector<Point> waits;
  view.buffer->collect_waits(to_write, nullptr, waits);
  return std::ranges::any_of(
      waits, [&](const Point& each) { return each.timeline == point.timeline && each.value == point.value; });
}

struct Shared {
  Ref<Runtime> runtime = *Runtime::make(
      std::make_shared<Importing>(test::TestOptions{.asynchronous = true, .name = "other-libraries"}), {});
  View view = *runtime->allocate(ir::DType::kF32, {1, 4});
  OtherStream other{never_reached(), {}};
};

}  // namespace

TEST_CASE(
    "who reads what another library releases waits for its stream and our writes, who writes for our reads, "
    "too") {
  Shared s;
  const Point written = never_reached(), read = never_reached();
  s.view.buffer->mark_write(written);
  s.view.buffer->mark_read(read);
  REQUIRE(s.runtime->released_by(&s.other, s.view).ok());
  CHECK(waits_for(s.view, false, s.other.given));
  CHECK(waits_for(s.view, false, written));
  CHECK_FALSE(waits_for(s.view, false, read));
  CHECK(waits_for(s.view, true, s.other.given));
  CHECK(waits_for(s.view, true, written));
  CHECK(waits_for(s.view, true, read));
}

TEST_CASE("what is handed to another library's stream holds that until our work on it is over") {
  Shared s;
  const Point written = never_reached(), read = never_reached();
  s.view.buffer->mark_write(written);
  s.view.buffer->mark_read(read);
  REQUIRE(s.runtime->hand_to(&s.other, s.view).ok());
  REQUIRE(s.other.holds.size() == 2);
  for (const Point& point : {written, read}) {
    CHECK(std::ranges::any_of(s.other.holds,
                              [&](const Point& each) { return each.timeline == point.timeline; }));
  }
}

TEST_CASE("who reads what another library lends waits for the stream that it names, and for none otherwise") {
  Shared s;
  std::vector<Ref<device::Buffer>> all;  // which go back once that stream's work is over
  for (const bool names : {true, false}) {
    const auto lent = s.runtime->lend({4096, 64, nullptr}, names ? &s.other : nullptr);
    CHECK(lent.ok());
    if (!lent.ok()) continue;
    View view = s.view;
    view.buffer = *lent;
    all.push_back(*lent);
    CHECK(waits_for(view, false, s.other.given) == names);
    CHECK(waits_for(view, true, s.other.given) == names);
  }
  s.other.given.timeline->advance(1, Other::right());
}

TEST_CASE("memory of the caller's owes another library's stream nothing") {
  Shared s;
  test::Rows mine(1, 2);
  CHECK(s.runtime->released_by(&s.other, mine.view()).ok());
  CHECK(s.runtime->hand_to(&s.other, mine.view()).ok());
  CHECK(s.other.holds.empty());
}

}  // namespace heddle::runtime
