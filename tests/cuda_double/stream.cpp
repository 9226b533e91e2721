#include "tests/cuda_double/stream.h"

#include "tests/cuda_double/faults.h"

namespace heddle::cuda_double {

Stream::Stream() : thread_("cuda-stream", [this] { run(); }) {}

Stream::~Stream() {
  state_.lock()->closed = true;
  state_.notify_all();
}

void Stream::tell(std::function<void()> work) {
  {
    auto state = state_.lock();
    state->work.push_back(std::move(work));
    ++state->left;
  }
  state_.notify_all();
}

void Stream::wait_idle() {
  auto state = state_.lock();
  state.wait([&] { return state->left == 0; });
}

void Stream::run() {
  for (;;) {
    std::function<void()> work;
    {
      auto state = state_.lock();
      state.wait([&] { return state->closed || !state->work.empty(); });
      if (state->work.empty()) return;
      work = std::move(state->work.front());
      state->work.pop_front();
    }
    if (!is_context_lost()) work();
    work = nullptr;
    --state_.lock()->left;
    state_.notify_all();
  }
}

}  // namespace heddle::cuda_double
