// BatchQueue::drain() beside an answer that is being given, and within it.
#include <future>

#include "on_test_device_fixture.h"

namespace heddle::api_test {
namespace {

std::vector<Tensor> same(std::span<const Tensor> x) { return {x.begin(), x.end()}; }

ErrorCode code_of(const BatchFuture& answer) {
  try {
    answer.get();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode{};
}

// Whether a drain of another thread's still waits for something.
bool another_waits(BatchQueue& queue) {
  return std::async(std::launch::async,
                    [&] {
                      try {
                        queue.drain(std::chrono::nanoseconds(0));
                      } catch (const Error& error) {
                        return error.code() == ErrorCode::deadline;
                      }
                      return false;
                    })
      .get();
}

TEST_CASE("a drain waits for an answer that another thread gives, and for none of its own thread's") {
  std::promise<void> watched;
  BatchQueueOptions options;
  options.limits.max_wait = std::chrono::nanoseconds(0);
  ErrorCode expected{};
  bool cancels = false;
  SUBCASE("to a request that ran") {
    options.setup = [&]() -> BatchFunction {
      watched.get_future().wait();
      return same;
    };
  }
  SUBCASE("to one whose worker could not start") {
    expected = ErrorCode::unavailable;
    options.setup = [&]() -> BatchFunction {
      watched.get_future().wait();
      throw Error(ErrorCode::unsupported, "there is nothing to run");
    };
  }
  SUBCASE("to a cancelled one") {
    expected = ErrorCode::cancelled;
    cancels = true;
    options.setup = [&]() -> BatchFunction {
      watched.get_future().wait();
      return same;
    };
  }
  BatchQueue queue(same, options);
  const BatchFuture answer = queue.submit({rows(1, 1)});
  bool waited = false, returned = false;
  std::promise<void> over;
  answer.then([&](const BatchFuture&) {
    waited = another_waits(queue);
    queue.drain();
    returned = true;
    if (cancels) {
      watched.set_value();
      queue.close();  // nor does this wait for itself
    }
    over.set_value();
  });
  if (cancels) {
    CHECK(answer.cancel());
  } else {
    watched.set_value();
  }
  over.get_future().wait();
  CHECK(waited);
  CHECK(returned);
  CHECK(code_of(answer) == expected);
  queue.drain();
}

}  // namespace
}  // namespace heddle::api_test
