// Streams in step with another library's: who waits for whom, shown by values.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/thread.h"
#include "base/yield.h"
#include "drivers/cuda/cuda_device.h"
#include "runtime/runtime.h"
#include "tests/cuda_double/cuda_double.h"

namespace heddle::cuda {
namespace {

using device::MemoryKind;
using device::View;

constexpr int64_t kNumbers = 256;
constexpr Duration kMoment = std::chrono::milliseconds(30);

Ref<runtime::Runtime> make_runtime() {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  const auto made = runtime::Runtime::make(*device);
  REQUIRE(made.ok());
  return *made;
}

// A stream of a stranger's, who calls CUDA by itself.
class Stranger {
 public:
  Stranger() {
    in_context([&] { REQUIRE(api().stream_create(&stream_, kNonBlockingStream) == kSuccess); });
  }
  ~Stranger() { end(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  StreamHandle stream() const { return stream_; }
  void wait_for(EventHandle event) {
    in_context([&] { REQUIRE(api().stream_wait(stream_, event, 0) == kSuccess); });
  }
  void copy(const View& from, const View& to) {
    in_context([&] { REQUIRE(api().copy(to.address(), from.address(), from.bytes(), stream_) == kSuccess); });
  }
  bool idle() const {
    bool idle = false;
    in_context([&] { idle = api().stream_query(stream_) == kSuccess; });
    return idle;
  }
  void finish() {
    in_context([&] { REQUIRE(api().stream_synchronize(stream_) == kSuccess); });
  }
  void end() {
    if (stream_ != nullptr) in_context([&] { api().stream_destroy(stream_); });
    stream_ = nullptr;
  }

 private:
  static const DriverApi& api() { return cuda_double::api(); }
  template <class F>
  static void in_context(F&& calls) {
    Context context = nullptr;
    api().primary_retain(&context, 0);
    api().push_context(context);
    calls();
    api().pop_context(&context);
  }
  StreamHandle stream_ = nullptr;
};

View numbers_in(runtime::Runtime& runtime, MemoryKind kind, float value = 0) {
  const auto made = runtime.allocate(ir::DType::kF32, {kNumbers}, kind);
  REQUIRE(made.ok());
  if (kind == MemoryKind::staging) device::fill_view(*made, value);
  return *made;
}

bool all_are(const View& staging, float value) {
  const auto* const first = reinterpret_cast<const float*>(staging.host());
  return std::all_of(first, first + kNumbers, [&](float each) { return each == value; });
}

bool stands_still(const Stranger& stranger) {
  for (const Deadline moment = Deadline::in(kMoment); !moment.expired(); give_way()) {
    if (stranger.idle()) return false;
  }
  return true;
}

TEST_CASE(
    "a submission waits for what the stranger's stream was given, and what that is given later for it") {
  const auto runtime = make_runtime();
  Stranger stranger;
  const auto stream = runtime->follow(stranger.stream());
  REQUIRE(stream.ok());
  CHECK((*stream)->native() == stranger.stream());
  CHECK((*stream)->id().index == runtime::StreamId::kForeign);
  const View ones = numbers_in(*runtime, MemoryKind::staging, 1),
             twos = numbers_in(*runtime, MemoryKind::staging, 2),
             seen = numbers_in(*runtime, MemoryKind::staging),
             left = numbers_in(*runtime, MemoryKind::staging), x = numbers_in(*runtime, MemoryKind::device),
             y = numbers_in(*runtime, MemoryKind::device);
  const EventHandle before = cuda_double::make_held_event(), between = cuda_double::make_held_event();

  stranger.wait_for(before);
  stranger.copy(ones, x);
  const auto gate = runtime->import_event({between, 0, nullptr});
  REQUIRE(gate.ok());
  REQUIRE(runtime->wait(**stream, *gate).ok());
  REQUIRE(runtime->copy(**stream, x, y).ok());
  stranger.copy(twos, x);  // x was to be read before
  stranger.copy(y, seen);
  stranger.copy(x, left);

  cuda_double::reach(between);
  CHECK((*stream)->synchronize(Deadline::in(kMoment)).code() == heddle::Code::deadline);
  CHECK(!stranger.idle());
  cuda_double::reach(before);
  REQUIRE((*stream)->synchronize(Deadline::never()).ok());
  stranger.finish();
  CHECK(all_are(seen, 1));
  CHECK(all_are(left, 2));
}

TEST_CASE("the stranger's stream stands still until a submission is over") {
  const auto runtime = make_runtime();
  Stranger stranger;
  const auto stream = runtime->follow(stranger.stream());
  REQUIRE(stream.ok());
  const View ones = numbers_in(*runtime, MemoryKind::staging, 1),
             seen = numbers_in(*runtime, MemoryKind::staging, 7),
             y = numbers_in(*runtime, MemoryKind::device);
  const EventHandle held = cuda_double::make_held_event();
  REQUIRE(runtime->wait(**stream, *runtime->import_event({held, 0, nullptr})).ok());
  REQUIRE(runtime->copy(**stream, ones, y).ok());
  stranger.copy(y, seen);
  const bool stood_still = stands_still(stranger);
  cuda_double::reach(held);
  CHECK(stood_still);
  stranger.finish();
  CHECK(all_are(seen, 1));
  stranger.end();  // only submissions need it
  CHECK((*stream)->synchronize(Deadline::never()).ok());
}

TEST_CASE("a stranger whom memory is handed reads it once our writes are over") {
  const auto runtime = make_runtime();
  Stranger stranger, ours;
  const auto stream = runtime->follow(ours.stream());
  REQUIRE(stream.ok());
  const View x = numbers_in(*runtime, MemoryKind::device), seen = numbers_in(*runtime, MemoryKind::staging);
  const EventHandle gate = cuda_double::make_held_event();
  REQUIRE(runtime->wait(**stream, *runtime->import_event({gate, 0, nullptr})).ok());
  REQUIRE(runtime->copy(**stream, numbers_in(*runtime, MemoryKind::staging, 3), x).ok());
  REQUIRE(runtime->hand_to(stranger.stream(), x).ok());
  stranger.copy(x, seen);
  CHECK(stands_still(stranger));
  cuda_double::reach(gate);
  stranger.finish();
  CHECK(all_are(seen, 3));
}

TEST_CASE("what a stranger has released we write once its readings are over") {
  const auto runtime = make_runtime();
  Stranger stranger, ours;
  const auto stream = runtime->follow(ours.stream());
  REQUIRE(stream.ok());
  const View x = numbers_in(*runtime, MemoryKind::device), seen = numbers_in(*runtime, MemoryKind::staging),
             left = numbers_in(*runtime, MemoryKind::staging);
  REQUIRE(runtime->copy(**stream, numbers_in(*runtime, MemoryKind::staging, 1), x).ok());
  REQUIRE(runtime->hand_to(stranger.stream(), x).ok());
  const EventHandle gate = cuda_double::make_held_event();
  stranger.wait_for(gate);
  stranger.copy(x, seen);
  REQUIRE(runtime->released_by(stranger.stream(), x).ok());
  REQUIRE(runtime->copy(**stream, numbers_in(*runtime, MemoryKind::staging, 2), x).ok());
  CHECK((*stream)->synchronize(Deadline::in(kMoment)).code() == heddle::Code::deadline);
  cuda_double::reach(gate);
  REQUIRE((*stream)->synchronize(Deadline::never()).ok());
  stranger.finish();
  CHECK(all_are(seen, 1));
  REQUIRE(runtime->copy(**stream, x, left).ok());
  REQUIRE((*stream)->synchronize(Deadline::never()).ok());
  CHECK(all_are(left, 2));
}

TEST_CASE("eight threads, each in step with a stranger of its own, see every value in order") {
  constexpr int kStrangers = 8, kRounds = 40;
  const auto runtime = make_runtime();
  Atomic<int> right{0};
  run_together(kStrangers, [&](int thread) {
    Stranger stranger;
    const auto stream = *runtime->follow(stranger.stream());
    const View in = numbers_in(*runtime, MemoryKind::staging),
               out = numbers_in(*runtime, MemoryKind::staging), x = numbers_in(*runtime, MemoryKind::device),
               y = numbers_in(*runtime, MemoryKind::device);
    for (int round = 0; round < kRounds; ++round) {
      const auto value = static_cast<float>(thread * kRounds + round);
      device::fill_view(in, value);
      stranger.copy(in, x);
      if (!runtime->copy(*stream, x, y).ok()) return;
      stranger.copy(y, out);
      stranger.finish();
      if (all_are(out, value)) right.add_relaxed(1);
    }
  });
  CHECK(right.load_acquire() == kStrangers * kRounds);
}

TEST_CASE("null is CUDA's default stream, and each stream in step is another one") {
  const auto runtime = make_runtime();
  const auto first = runtime->follow(nullptr), second = runtime->follow(nullptr);
  REQUIRE((first.ok() && second.ok()));
  CHECK((*first)->native() == nullptr);
  CHECK(!((*first)->id() == (*second)->id()));
  const View ones = numbers_in(*runtime, MemoryKind::staging, 1),
             seen = numbers_in(*runtime, MemoryKind::staging), y = numbers_in(*runtime, MemoryKind::device);
  REQUIRE(runtime->copy(**first, ones, y).ok());
  REQUIRE(runtime->copy(**second, y, seen).ok());
  REQUIRE((*second)->synchronize(Deadline::never()).ok());
  CHECK(all_are(seen, 1));
}

}  // namespace
}  // namespace heddle::cuda
