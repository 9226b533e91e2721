// What CUDA's errors mean, and errors after which nobody would tell when work is over.
#include <doctest/doctest.h>

#include "base/thread.h"
#include "base/yield.h"
#include "drivers/cuda/cuda_device.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using cuda_double::Call;
using device::CommandList;

struct Fresh {
  Fresh() {
    cuda_double::forget_faults();
    const auto made = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
    REQUIRE(made.ok());
    device = *made;
    view = conformance::empty_like(*device, ir::DType::kI32, {16});
    queue = device->make_queue(NoLocksHeld()).value();
  }
  ~Fresh() { cuda_double::forget_faults(); }

  Ref<device::Device> device;
  device::View view;
  std::unique_ptr<device::Queue> queue;
};

CommandList fill_of(const device::View& view, double value) {
  CommandList list;
  list.fill(view, value);
  return list;
}

TEST_CASE("an error of CUDA's is lost, exhausted, unavailable, unsupported or internal, by its number") {
  struct Row {
    Code code;
    heddle::Code means;
  };
  for (const Row& row : {
           Row{kOutOfMemory, heddle::Code::exhausted},
           Row{kDeinitialized, heddle::Code::unavailable},
           Row{kNoDevice, heddle::Code::unavailable},
           Row{803, heddle::Code::unavailable},  // the versions of the driver's parts do not fit
           Row{kNoBinaryForGpu, heddle::Code::unsupported},
           Row{222, heddle::Code::unsupported},  // intermediate code newer than the driver
           Row{214, heddle::Code::device_lost},
           Row{226, heddle::Code::device_lost},
           Row{kIllegalAddress, heddle::Code::device_lost},
           Row{719, heddle::Code::device_lost},
           Row{721, heddle::Code::device_lost},
           Row{810, heddle::Code::device_lost},
           Row{kUnknown, heddle::Code::device_lost},
           Row{701, heddle::Code::internal},  // one launch that asked for too much
           Row{704, heddle::Code::internal},
           Row{kInvalidValue, heddle::Code::internal},
       }) {
    CAPTURE(row.code);
    const Status status = status_of(cuda_double::api(), row.code, "a test");
    CHECK(status.code() == row.means);
    CHECK(status.message().find(text("(", row.code, ")")) != std::string::npos);
    CHECK(status.message().find("a test") != std::string::npos);
  }
}

TEST_CASE("work in flight whose end CUDA does not know any more loses the device: nobody waits for ever") {
  Fresh fresh;
  const auto gate = cuda_double::make_held_event();
  CommandList list;
  list.wait(fresh.device->import_event({gate, 0, nullptr}, NoLocksHeld()).value());
  list.fill(fresh.view, 1);
  cuda_double::refuse(Call::kQuery, kInvalidContext, 0, 1'000'000);
  const Status submitted = fresh.queue->submit(list, 1, NoLocksHeld());
  const Status waited = fresh.queue->timeline()->wait(1, Deadline::in(std::chrono::seconds(60)));
  cuda_double::reach(gate);
  CHECK(submitted.ok());
  CHECK(waited.code() == heddle::Code::device_lost);
  CHECK(waited.message().find("(201)") != std::string::npos);
  CHECK(waited.message().find("the end of that work is unknown") != std::string::npos);
  CHECK(fresh.device->lost().code() == heddle::Code::device_lost);
}

TEST_CASE("a queue whose last work ends with an error of any kind is destroyed, and its timeline fails") {
  Fresh fresh;
  const Ref<device::Timeline> timeline = fresh.queue->timeline();
  const auto gate = cuda_double::make_held_event();
  CommandList list;
  list.wait(fresh.device->import_event({gate, 0, nullptr}, NoLocksHeld()).value());
  list.fill(fresh.view, 1);
  REQUIRE(fresh.queue->submit(list, 1, NoLocksHeld()).ok());
  cuda_double::refuse(Call::kSynchronize, kInvalidContext, 0, 1);
  {
    const Thread stranger("stranger", [&] {  // the double ends a stream's work before it destroys the stream
      while (cuda_double::calls_of(Call::kSynchronize) == 0) give_way();
      cuda_double::reach(gate);
    });
    fresh.queue.reset();
  }
  CHECK(timeline->failed());
  CHECK(timeline->failure().code() == heddle::Code::device_lost);
  CHECK(fresh.device->lost().code() == heddle::Code::device_lost);
}

TEST_CASE("a submission whose end CUDA refuses is over all the same, and its queue takes no more") {
  Fresh fresh;
  CommandList first = fill_of(fresh.view, 1), second = fill_of(fresh.view, 2), third = fill_of(fresh.view, 3);
  REQUIRE(fresh.queue->submit(first, 1, NoLocksHeld()).ok());
  cuda_double::refuse(Call::kWrite, kInvalidValue, 0, 1);
  CHECK_FALSE(fresh.queue->submit(second, 2, NoLocksHeld()).ok());
  const Status failed = fresh.queue->timeline()->wait(2, Deadline::in(std::chrono::seconds(60)));
  CHECK(failed.message().find("the end of a submission could not be enqueued") != std::string::npos);
  CHECK(fresh.queue->timeline()->wait(1, Deadline::never()).ok());
  CHECK_FALSE(fresh.queue->submit(third, 3, NoLocksHeld()).ok());
  CHECK(fresh.device->lost().ok());
  fresh.queue.reset();
  CHECK(conformance::Session(*fresh.device).submit(third).ok());
  CHECK(conformance::download(*fresh.device, fresh.view).get_i64(15) == 3);
}

}  // namespace
}  // namespace heddle::cuda
