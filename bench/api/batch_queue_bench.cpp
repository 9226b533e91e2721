// Question  What does the batch queue cost a request, when the callable does nothing? The bar is 2 us.
// Read as   wall ns per request. "mechanism": submit, take and finish of the RequestQueue on one thread,
//           batches of 64, no payload. "pipelined": callers of a BatchQueue with 256 requests under way each,
//           one row of f32[1, 8]; its worker stacks, calls a function that returns its input, splits and
//           answers. "blocking": each caller waits for its answer before it asks again; a lone one pays two
//           wake-ups.
// Checked   Every answer is the row that was asked with.
#include <heddle/heddle.h>

#include <deque>

#include "batch/requests/request_queue.h"
#include "bench/base/rounds.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 11;
constexpr uint64_t kRequests = 10'240;  // of each caller; full batches: the rest of one could wait
constexpr size_t kUnderWay = 256;

uint64_t mechanism(batch::RequestQueue& queue) {
  uint64_t right = 0;
  const Deadline now = Deadline::at(TimePoint::min());
  for (uint64_t i = 0; i < kRequests;) {
    for (size_t k = 0; k < 64 && i < kRequests; ++k, ++i) {
      batch::Request request;
      request.payload = &queue;
      if (!queue.submit(request, now).ok()) std::exit(1);
    }
    while (const auto work = queue.try_take()) {
      for (void* payload : work->batch) right += payload == &queue ? 1 : 0;
      queue.formed(work->ticket);
      static_cast<void>(queue.ran(work->ticket));
      queue.finish(work->ticket, false);
    }
  }
  return right;
}

Tensor row(float value) { return Tensor::of<float>({1, 8}, {value, 1, 2, 3, 4, 5, 6, 7}); }

bool is_right(const BatchFuture& answer, float value) {
  const Tensor y = answer.get()[0];
  return y.shape() == Shape{1, 8} && y.values<float>()[0] == value;
}

uint64_t pipelined(BatchQueue& queue, int thread) {
  uint64_t right = 0;
  std::deque<std::pair<float, BatchFuture>> under_way;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const auto value = static_cast<float>(i + static_cast<uint64_t>(thread) * kRequests);
    if (under_way.size() == kUnderWay) {
      right += is_right(under_way.front().second, under_way.front().first) ? 1 : 0;
      under_way.pop_front();
    }
    under_way.emplace_back(value, queue.submit({row(value)}));
  }
  for (const auto& [value, answer] : under_way) right += is_right(answer, value) ? 1 : 0;
  return right;
}

uint64_t blocking(BatchQueue& queue, int thread, uint64_t requests) {
  uint64_t right = 0;
  for (uint64_t i = 0; i < requests; ++i) {
    const auto value = static_cast<float>(i + static_cast<uint64_t>(thread) * kRequests);
    right += is_right(queue.submit({row(value)}), value) ? 1 : 0;
  }
  return right;
}

int run(int argc, char** argv) {
  batch::QueueOptions options;
  batch::RequestQueue bare(options);
  BatchQueueOptions queue_options;
  queue_options.limits.max_batch = 64;
  BatchQueue queue([](std::span<const Tensor> x) { return std::vector<Tensor>(x.begin(), x.end()); },
                   queue_options);
  const std::vector<Case> cases = {
      {"mechanism", 1, kRequests, [&](int) { return mechanism(bare); }},
      {"BatchQueue, pipelined", 1, kRequests, [&](int t) { return pipelined(queue, t); }},
      {"BatchQueue, pipelined", 4, kRequests, [&](int t) { return pipelined(queue, t); }},
      {"BatchQueue, blocking", 1, kRequests / 10, [&](int t) { return blocking(queue, t, kRequests / 10); }},
      {"BatchQueue, blocking", 64, kRequests / 10, [&](int t) { return blocking(queue, t, kRequests / 10); }},
  };
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  write_json(argc, argv, "batch_queue", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
