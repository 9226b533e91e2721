// Two GPUs in one process, and what a stranger's capture of a stream asks of every thread.
#include "base/thread.h"
#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

class TwoDevices {
 public:
  TwoDevices() { cuda_double::set_devices(2); }
  ~TwoDevices() {
    cuda_double::forget_faults();
    cuda_double::set_devices(1);
  }
  TwoDevices(const TwoDevices&) = delete;
  TwoDevices& operator=(const TwoDevices&) = delete;
};

bool refuses(const Status& status, std::string_view words) {
  return status.code() == heddle::Code::invalid && status.message().find(words) != std::string::npos;
}

TEST_CASE("threads compute on two devices at once, and each gets the values of one") {
  constexpr int kThreads = 4, kRounds = 20;
  const TwoDevices two;
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  const Ref<device::Device> devices[] = {device_of({.ordinal = 0}), device_of({.ordinal = 1})};
  CHECK(devices[0]->traits().name == "cuda");
  CHECK(devices[1]->traits().name == "cuda:1");
  const Ref<const device::Program> programs[] = {layers(*devices[0], 5), layers(*devices[1], 5)};
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    const int which = thread % 2;
    const Place place = place_of(*devices[which], *programs[which], {x});
    Session session(*devices[which]);
    for (int i = 0; i < kRounds; ++i) {
      if (conformance::same_bits(result_at(*devices[which], session, programs[which], place), wanted))
        right.add_relaxed(1);
    }
  });
  CHECK(right.load_acquire() == kThreads * kRounds);
}

TEST_CASE("memory of one device that is given to the other is refused") {
  const TwoDevices two;
  const Ref<device::Device> mine = device_of({.ordinal = 0}), other = device_of({.ordinal = 1});
  const device::View view = conformance::empty_like(*other, ir::DType::kF32, {16});
  device::CommandList list;
  list.fill(view, 1);
  CHECK(refuses(Session(*mine).submit(list), "memory of another device"));
  const auto lent = mine->import_memory({view.address(), view.bytes(), nullptr}, NoLocksHeld());
  CHECK(refuses(lent.status(), "is on GPU 1, not on 0"));
  CHECK(other->import_memory({view.address(), view.bytes(), nullptr}, NoLocksHeld()).ok());
}

TEST_CASE("a device whose context is lost leaves the other as it was") {
  const TwoDevices two;
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  const Ref<device::Device> devices[] = {device_of({.ordinal = 0}), device_of({.ordinal = 1})};
  const Ref<const device::Program> programs[] = {layers(*devices[0], 5), layers(*devices[1], 5)};
  const Place places[] = {place_of(*devices[0], *programs[0], {x}), place_of(*devices[1], *programs[1], {x})};
  Session first(*devices[0]), second(*devices[1]);
  cuda_double::lose_context(kIllegalAddress, 1);
  CHECK(run_at(second, programs[1], places[1]).code() == heddle::Code::device_lost);
  CHECK(devices[1]->lost().code() == heddle::Code::device_lost);
  for (int i = 0; i < 3; ++i)
    CHECK(conformance::same_bits(result_at(*devices[0], first, programs[0], places[0]), wanted));
  CHECK(devices[0]->lost().ok());
}

TEST_CASE("a device that the machine does not have is named with those it has") {
  const auto made =
      make_cuda_device({.ordinal = 1, .api = &cuda_double::api(), .image = cuda_double::image()});
  CHECK(made.status().code() == heddle::Code::unavailable);
  CHECK(made.status().message().find("this machine has 1, numbered from 0 to 0") != std::string::npos);
}

// The double ends the process where a thread of ours would break the capture.
TEST_CASE("a device is opened, computes and is closed while a stranger captures a stream") {
  const ir::Tensor x = rows_of(5, 1), wanted = launched_directly(x);
  const cuda_double::ForeignCapture capture;
  const auto device = device_of({.blas = &cuda_double::blas_lt(), .cudnn = &cuda_double::cudnn()});
  const auto program = layers(*device, 5);
  const Place place = place_of(*device, *program, {x});
  Session session(*device);
  for (int i = 0; i < 3; ++i)
    CHECK(conformance::difference(result_at(*device, session, program, place), wanted, {1e-5, 1e-5}) == "");
  const auto event = cuda_double::make_held_event();
  const device::Point point = device->import_event({event, 0, nullptr}, NoLocksHeld()).value();
  cuda_double::reach(event);
  CHECK(point.timeline->wait(1, Deadline::never()).ok());
}

}  // namespace
}  // namespace heddle::cuda
