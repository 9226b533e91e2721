// production_test.cpp: what a server watches: the figures of a queue, and memory that is used again.
#include "harness_fixture.h"

namespace stress {
namespace {

using heddle::BatchMetrics;
using heddle::DType;
using heddle::ErrorCode;
using heddle::MemoryStats;

uint64_t reserved_by(const heddle::Device& device) { return device.stats().memory.reserved; }

}  // namespace

TEST_CASE("what a queue says of itself in production adds up, and memory is level") {
  constexpr int kClients = 8, kEach = 40;
  const heddle::Device device = fresh_device();
  const Case c = small(device);
  heddle::BatchQueueOptions options;
  options.limits.max_batch = 32;
  options.workers = 2;
  const uint64_t before = device.stats().memory.allocated;
  std::optional<heddle::BatchQueue> queue(std::in_place, c.model, options);
  std::atomic<uint64_t> right = 0, cancelled = 0, rows = 0;
  const auto serve = [&] {
    const auto errors = run_threads(kClients, [&](int thread) {
      for (int i = 0; i < kEach; ++i) {
        const auto n = static_cast<size_t>(thread + i);
        const auto answer = queue->submit(c.inputs[n % c.inputs.size()]);
        if (i % 10 == 9 && answer.cancel()) {
          ++cancelled;
          continue;
        }
        right += c.matches(n, answer.get()) ? 1 : 0;
        rows += static_cast<uint64_t>(c.inputs[n % c.inputs.size()][0].shape()[0]);
      }
    });
    CHECK(errors.empty());
  };
  serve();
  for (int hour = 0; hour < 3; ++hour) serve();
  constexpr uint64_t kAll = 4 * kClients * kEach;
  CHECK(right + cancelled == kAll);
  queue->drain();
  const BatchMetrics metrics = queue->metrics();
  CHECK(metrics.submitted == kAll);
  CHECK(metrics.cancelled == cancelled);
  CHECK(metrics.rejected + metrics.expired + metrics.refused + metrics.failed_batches == 0);
  CHECK(metrics.rows == rows);
  CHECK(metrics.depth + metrics.running == 0);
  CHECK(metrics.total.count == right);
  for (const heddle::Distribution& each : {metrics.wait, metrics.total, metrics.run}) {
    CHECK(each.count > 0);
    CHECK(each.p50 <= each.p95);
    CHECK(each.p95 <= each.p99);
    CHECK(each.sum > 0);
  }
  // A percentile is at most an eighth too high: each request waits within its total.
  CHECK(metrics.wait.sum <= metrics.total.sum);
  uint64_t batches = 0;
  for (const auto& [up_to, count] : metrics.batch_sizes) batches += count;
  CHECK(batches == metrics.batches);
  queue.reset();  // its workers give a batch's memory back after they have answered it
  device.synchronize();
  CHECK(device.stats().memory.allocated == before);
}

TEST_CASE(
    "a pool of tensors: what was let go serves the next ones, of each shape, and the driver is not asked "
    "again") {
  const heddle::Device device = fresh_device();
  const std::vector<heddle::Shape> shapes = {{16, 8}, {100, 33}, {1, 3000}, {64, 1024}};
  const uint64_t before = device.stats().memory.allocated;
  const auto hold_all = [&] {
    std::vector<Tensor> held;
    uint64_t bytes = 0;
    for (const heddle::Shape& shape : shapes) {
      for (int i = 0; i < 3; ++i) {
        held.push_back(Tensor::empty(DType::f32, shape, device));
        CHECK(held.back().shape() == shape);
        CHECK(held.back().dtype() == DType::f32);
        bytes += static_cast<uint64_t>(held.back().elements()) * sizeof(float);
      }
    }
    for (size_t i = 0; i < held.size(); ++i) {
      for (size_t k = 0; k < i; ++k) CHECK(held[i].address() != held[k].address());
    }
    CHECK(device.stats().memory.allocated - before >= bytes);
  };
  hold_all();
  const MemoryStats warm = device.stats().memory;
  CHECK(warm.allocated == before);
  for (int round = 0; round < 20; ++round) hold_all();
  const MemoryStats after = device.stats().memory;
  CHECK(after.misses == warm.misses);
  CHECK(after.hits - warm.hits == 20 * 3 * shapes.size());
  CHECK(after.reserved == warm.reserved);
  device.empty_cache();
  CHECK(reserved_by(device) < warm.reserved);
}

}  // namespace stress
