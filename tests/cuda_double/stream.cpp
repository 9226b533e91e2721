#include "tests/cuda_double/stream.h"

#include <array>
#include <utility>

#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/faults.h"

namespace heddle::cuda_double {

Stream::Stream(int device) : device_(device), thread_("cuda-stream", [this] { run(); }) {}

Stream::~Stream() {
  state_.lock()->closed = true;
  state_.notify_all();
}

void Stream::tell(std::function<void()> work) {
  Told told{std::move(work), known_to_host()};
  {
    auto state = state_.lock();
    if (state->captured.has_value()) {
      state->captured->push_back(std::move(told.work));
      return;
    }
    state->told.push_back(std::move(told));
    ++state->left;
  }
  state_.notify_all();
}

void Stream::begin_capture() { state_.lock()->captured.emplace(); }

std::vector<std::function<void()>> Stream::end_capture() {
  auto captured = std::exchange(state_.lock()->captured, std::nullopt);
  if (!captured.has_value()) stop("cuStreamEndCapture", "the stream is not captured");
  return std::move(*captured);
}

void Stream::require_uncaptured(const char* what) {
  if (state_.lock()->captured.has_value()) stop(what, "the stream is captured, and that ends its capture");
}

bool Stream::idle() {
  if (state_.lock()->left > 0) return false;
  order_.show_host();
  return true;
}

void Stream::wait_idle() {
  {
    auto state = state_.lock();
    state.wait([&] { return state->left == 0; });
  }
  order_.show_host();
}

void Stream::run() {
  order_.take_thread();
  for (;;) {
    Told next;
    {
      auto state = state_.lock();
      state.wait([&] { return state->closed || !state->told.empty(); });
      if (state->told.empty()) return;
      next = std::move(state->told.front());
      state->told.pop_front();
    }
    order_.begin(next.host);
    if (!is_context_lost(device_)) next.work();
    next.work = nullptr;
    --state_.lock()->left;
    state_.notify_all();
  }
}

Stream* stream_of(cuda::StreamHandle handle, const char* what) {
  const int device = current_device(what);
  if (handle == nullptr) stop(what, "the null stream");
  if (handle == reinterpret_cast<void*>(uintptr_t{1})) {  // the legacy default stream, by its name
    static auto* const legacy = new std::array{new Stream(0), new Stream(1)};
    return (*legacy)[static_cast<size_t>(device)];
  }
  auto* const stream = static_cast<Stream*>(handle);
  require_current(stream->device(), what, "the stream is another context's");
  return stream;
}

}  // namespace heddle::cuda_double
