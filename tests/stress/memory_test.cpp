// memory_test.cpp: memory runs out in one thread and the others do not notice; caches are given back; nothing
// grows.
#include "harness_fixture.h"

namespace stress {
namespace {

// A device with 64 MiB, or fewer where the models are narrower.
heddle::Device small_device() {
  heddle::DeviceOptions options;
  options.memory_fraction = static_cast<double>(narrower(64) << 20) /
                            static_cast<double>(fresh_device().stats().memory.recommended_max);
  return fresh_device(options);
}

}  // namespace

TEST_CASE("one thread runs out of memory while seven go on with right values") {
  heddle::DeviceOptions options;
  options.memory_fraction = 0.05;
  const heddle::Device device = fresh_device(options);
  const Case c = small(device, 512);
  const int64_t rows = static_cast<int64_t>(device.stats().memory.limit / (512 * sizeof(float))) + 1;
  static const float kRow[512] = {};
  std::atomic<int> right = 0;
  std::atomic<int> refused = 0;
  const auto errors = run_threads(8, [&](int thread) {
    for (size_t i = 0; i < 50; ++i) {
      if (thread > 0) {
        right += c.call(i) ? 1 : 0;
        continue;
      }
      try {
        c.model({Tensor::borrow(kRow, heddle::DType::f32, {rows, 512},
                                {0, 1})});  // its result alone passes the limit
      } catch (const heddle::Error& e) {
        refused += e.code() == heddle::ErrorCode::exhausted ? 1 : 0;
      }
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 350);
  CHECK(refused == 50);
  CHECK(c.call(0));
}

TEST_CASE("the memory-pressure callback is told what is needed, and what it frees serves the request") {
  const heddle::Device device = small_device();
  const auto limit = static_cast<int64_t>(device.stats().memory.limit);
  Tensor held = Tensor::empty(heddle::DType::u8, {limit / 4 * 3}, device);
  std::vector<uint64_t> asked;
  device.on_memory_pressure([&](uint64_t bytes) {
    asked.push_back(bytes);
    held = Tensor();
  });
  CHECK_NOTHROW(Tensor::empty(heddle::DType::u8, {limit / 2}, device));
  REQUIRE(asked.size() == 1);
  CHECK(asked[0] >= static_cast<uint64_t>(limit / 2));
  CHECK_FALSE(held);
}

TEST_CASE("four threads under memory pressure get their values, and the callback may empty the cache") {
  const heddle::Device device = small_device();
  const Case c = small(device, 1024);
  std::mutex mutex;
  std::vector<Tensor> held;  // results, until the callback drops them
  int pressed = 0;
  device.on_memory_pressure([&](uint64_t) {
    std::vector<Tensor> dropped;
    {
      const std::lock_guard lock(mutex);
      dropped.swap(held);
      ++pressed;
    }
    dropped.clear();
    device.empty_cache();
  });
  const auto limit = device.stats().memory.limit;
  const int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(limit / 32 / (1024 * sizeof(float))));
  static const float kRow[1024] = {};
  std::atomic<int> right = 0;
  const auto errors = run_threads(4, [&](int thread) {
    for (int i = 0; i < 16; ++i) {  // two limits' worth, all threads together
      const Tensor x = Tensor::borrow(kRow, heddle::DType::f32, {rows + thread * 16 + i, 1024}, {0, 1});
      Tensor y = c.model({x})[0];
      const auto values = y.values<float>();
      right += values.front() == 1 && values.back() == 1 ? 1 : 0;
      const std::lock_guard lock(mutex);
      held.push_back(std::move(y));
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 64);
  CHECK(pressed > 0);
}

TEST_CASE("a memory-pressure callback may call the model that needs the memory, on one thread or four") {
  for (const int threads : {1, 4}) {
    const heddle::Device device = small_device();
    const Case c = small(device, 1024);
    std::mutex mutex;
    std::vector<Tensor> held;
    std::atomic<int> inner = 0, pressed = 0, right = 0;
    device.on_memory_pressure([&](uint64_t) {
      std::vector<Tensor> dropped;
      {
        const std::lock_guard lock(mutex);
        dropped.swap(held);
      }
      dropped.clear();
      ++pressed;
      inner += c.call(0, {.timeout = std::chrono::seconds(20), .stream = {}}) ? 1 : 0;
    });
    const auto limit = device.stats().memory.limit;
    const int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(limit / 32 / (1024 * sizeof(float))));
    static const float kRow[1024] = {};
    const auto errors = run_threads(threads, [&](int thread) {
      for (int i = 0; i < 64 / threads; ++i) {
        const Tensor x = Tensor::borrow(kRow, heddle::DType::f32, {rows + thread * 16 + i, 1024}, {0, 1});
        Tensor y = c.model({x})[0];
        const auto values = y.values<float>();
        right += values.front() == 1 && values.back() == 1 ? 1 : 0;
        const std::lock_guard lock(mutex);
        held.push_back(std::move(y));
      }
    });
    for (const std::string& error : errors) FAIL_CHECK(error);
    CHECK(right == 64);
    CHECK(pressed > 0);
    CHECK(inner == pressed);
  }
}

TEST_CASE("empty_cache gives back what no tensor holds") {
  const heddle::Device device = fresh_device();
  const Case c = small(device, 4096);
  for (size_t i = 0; i < c.inputs.size(); ++i) CHECK(c.call(i));
  const Tensor held = c.model(c.inputs[3])[0];
  device.empty_cache();
  const auto stats = device.stats().memory;
  CHECK(stats.allocated + stats.staging >= 16 * 4096 * sizeof(float));  // a result may be the host's memory
  CHECK(stats.reserved == stats.allocated + stats.slots);
  CHECK(c.matches(3, {held}));
}

TEST_CASE("a bounded executable cache stays within its bytes under a thousand shapes") {
  heddle::DeviceOptions options;
  options.executable_bytes = uint64_t{1} << 18;
  const heddle::Device device = fresh_device(options);
  const Case c = small(device);
  int right = 0;
  for (int64_t rows = 1; rows <= 1000; ++rows) {
    const Tensor x = random_tensor({rows, 8}, static_cast<uint32_t>(rows));
    const Tensor y = c.model({x})[0];
    right += y.values<float>().back() == x.values<float>().back() * 2 + 1 ? 1 : 0;
  }
  CHECK(right == 1000);
  CHECK(device.stats().cached_bytes <= options.executable_bytes);
  CHECK(device.stats().evictions > 0);
}

}  // namespace stress
