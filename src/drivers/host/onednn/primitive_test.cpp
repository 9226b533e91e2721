#include "drivers/host/onednn/primitive.h"

#include <doctest/doctest.h>

#include <array>

#include "base/thread.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/omp_scope.h"

namespace heddle::host {
namespace {

using Desc = dnnl::matmul::primitive_desc;

Result<Ref<const Primitive>> make_product(const Engine& engine, int64_t n) {
  HEDDLE_TRY_ASSIGN(const Desc desc, caught("preparing", [&] {
                      return Desc(engine.cpu, f32_desc({1, n}), f32_desc({n, n}), f32_desc({1, n}),
                                  engine.attributes());
                    }));
  return Primitive::make<Desc, dnnl::matmul>(engine, desc,
                                             {{DNNL_ARG_SRC, desc.src_desc()},
                                              {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                              {DNNL_ARG_DST, desc.dst_desc()}});
}

TEST_CASE("what oneDNN keeps on its own stays small, however many shapes come") {
  const auto engine = *make_engine(false);
  CHECK(dnnl::get_primitive_cache_capacity() == kCachedPrimitives);
}

// More threads than sets are kept, so that some are made and dropped all the time; and as many as that.
TEST_CASE("one primitive run by many threads gives each its own result") {
  constexpr int kThreads = 24, kRuns = 200;
  constexpr int64_t kSize = 16;
  for (const int runs_at_once : {1, 16, 256}) {
    const OmpScope team_of_one;
    const auto engine = *make_engine(false, false, nullptr, runs_at_once);
    const auto product = *make_product(*engine, kSize);
    std::vector<float> identity(kSize * kSize, 0);
    for (int64_t i = 0; i < kSize; ++i) identity[static_cast<size_t>(i * kSize + i)] = 1;
    Atomic<int> runs{0}, wrong{0};
    run_together(kThreads, [&](int thread) {
      const OmpScope own_team_of_one;
      std::vector<std::byte> scratch(product->scratch_bytes() + 64);
      for (int run = 0; run < kRuns; ++run) {
        std::array<float, kSize> x{}, y{};
        x.fill(static_cast<float>(thread * kRuns + run));
        if (!product->run(std::array<const void*, 4>{x.data(), identity.data(), y.data(), scratch.data()})
                 .ok())
          wrong.add_relaxed(1);
        if (x != y) wrong.add_relaxed(1);
        runs.add_relaxed(1);
      }
    });
    CHECK(runs.load_acquire() == kThreads * kRuns);
    CHECK(wrong.load_acquire() == 0);
  }
}

TEST_CASE("what oneDNN throws becomes a Status") {
  const auto engine = *make_engine(false);
  const auto refused = caught("a product that does not fit", [&] {
    return Desc(engine->cpu, f32_desc({1, 3}), f32_desc({4, 5}), f32_desc({1, 5}), engine->attributes());
  });
  CHECK_FALSE(refused.ok());
  CHECK(refused.status().message().find("a product that does not fit") == 0);
  CHECK(onednn_status(dnnl_unimplemented, "x").code() == Code::unsupported);
  CHECK(onednn_status(dnnl_out_of_memory, "x").code() == Code::exhausted);
  CHECK(onednn_status(dnnl_runtime_error, "x").code() == Code::internal);
  CHECK(onednn_status(dnnl_success, "x").ok());
}

}  // namespace
}  // namespace heddle::host
