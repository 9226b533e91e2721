// Attention in tiles: the reference's values for every form of its operands, and bits that are a query's own.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;

// f16 and bf16 on tensor cores, and on a GPU without them.
struct Way {
  DType dtype;
  bool older;
};
constexpr Way kWays[] = {{DType::kF32, false},
                         {DType::kF16, false},
                         {DType::kBF16, false},
                         {DType::kF16, true},
                         {DType::kBF16, true}};

bool is_on_tensor_cores(const Way& way) { return way.dtype != DType::kF32 && !way.older; }

Ref<device::Device> attending_device(const Way& way) {
  const auto made = make_cuda_device(
      {.api = &cuda_double::api(), .image = way.older ? cuda_double::older_image() : cuda_double::image()});
  REQUIRE(made.ok());
  return *made;
}

// Tiles of all three widths; heads that fill them, and heads whose extents are no multiples of 4.
struct HeadExtents {
  int64_t extent, value_extent;
};
constexpr HeadExtents kHeads[] = {{32, 32}, {23, 30}, {64, 50}, {61, 64}, {128, 99}, {100, 128}};

conformance::In mask_of(int kind, int64_t queries, int64_t keys) {
  const auto of_type = [](DType dtype, ir::Extents extents) {
    return conformance::In{extents, -2, 2, dtype, false, {}, false};
  };
  switch (kind) {
    case 0:
      return conformance::none();
    case 1:
      return conformance::bools({2, 1, 1, keys});
    case 2:
      return conformance::bools({queries, keys});
    case 3:
      return of_type(DType::kF32, {2, queries, keys});
    case 4:
      return of_type(DType::kF16, {1, 2, 1, keys});
    case 5:
      return of_type(DType::kBF16, {queries, keys});
    default:
      return of_type(DType::kF64, {2, 2, queries, keys});
  }
}

// The tolerances of 16-bit types hold for weights of these types: each is off by half a unit in the last
// place at most, u of itself. The result, an average, moves by u times the range of the values and is rounded
// then: for values from -1 to 1 that is 3 u, 1.2e-2 in bf16 and 1.5e-3 in f16.
TEST_CASE("every kernel gives attention the reference's values, with each mask and any number of queries") {
  constexpr int kMasks = 7;
  const int64_t all_keys[] = {45, 1, 32, 70, 33};
  for (const Way& way : kWays) {
    const DType dtype = way.dtype;
    const auto device = attending_device(way);
    int turn = 0;
    std::set<std::pair<int, bool>> tried;
    for (const HeadExtents& head : kHeads) {
      for (const int64_t queries : {1, 8, 9, 30, 33, 70, 130}) {
        const int64_t keys = all_keys[turn % 5];
        const int mask = (turn + turn / kMasks) % kMasks;
        const bool causal = (turn + turn / (2 * kMasks)) % 2 != 0;
        ++turn;
        tried.insert({mask, causal});
        const conformance::Case one = {
            "Attention",
            {conformance::T({2, queries, 2 * head.extent}), conformance::T({2, keys, 2 * head.extent}),
             conformance::T({2, keys, 2 * head.value_extent}), mask_of(mask, queries, keys)},
            {{"num_heads", int64_t{2}}, {"causal", int64_t{causal}}}};
        CAPTURE(std::string(ir::name(dtype)));
        CAPTURE(way.older);
        CAPTURE(head.extent);
        CAPTURE(queries);
        CAPTURE(keys);
        CAPTURE(mask);
        CAPTURE(causal);
        const Status status = conformance::check_case(*device, one, dtype);
        CHECK_MESSAGE(status.ok(), to_string(status));
      }
    }
    CHECK(tried.size() == 2 * kMasks);
  }
}

struct AttentionModule {
  Ref<device::Device> device;
  Ref<const device::Module> module;

  AttentionModule(const Way& way, const HeadExtents& head) : device(attending_device(way)) {
    const DType dtype = way.dtype;
    const auto rows = [&](const char* name, int64_t width) {
      return ir::TensorType{dtype, {1, ir::Dim::symbol(name), 2 * width}};
    };
    ir::Builder b;
    const ir::ValueId q = b.input("q", rows("queries", head.extent)),
                      k = b.input("k", rows("keys", head.extent)),
                      v = b.input("v", rows("keys", head.value_extent));
    b.output(*b.node("Attention", {q, k, v}, {{"num_heads", int64_t{2}}}));
    const auto made = device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
    REQUIRE(made.ok());
    module = *made;
  }
};

TEST_CASE("a row has the bits that it has alone: a query's, whatever tile it is in") {
  for (const Way& way : kWays) {
    const DType dtype = way.dtype;
    for (const HeadExtents& head : kHeads) {
      const AttentionModule attention(way, head);
      conformance::Session session(*attention.device);
      const ir::Tensor q = random_tensor(dtype, {1, 150, 2 * head.extent}, 1),
                       k = random_tensor(dtype, {1, 67, 2 * head.extent}, 2),
                       v = random_tensor(dtype, {1, 67, 2 * head.value_extent}, 3);
      std::set<std::string> launches;  // kernel without its type, and threads of a block
      const auto attend = [&](int64_t queries) {
        ir::Tensor first = ir::Tensor::zeros(dtype, {1, queries, 2 * head.extent});
        std::memcpy(first.mutable_data(), q.data(), static_cast<size_t>(first.bytes()));
        const std::vector<ir::Tensor> inputs = {first, k, v};
        const auto program = conformance::compile(*attention.module, inputs);
        REQUIRE(program.ok());
        const auto& lowered = static_cast<const CudaProgram&>(**program).lowered();
        const auto& launch = std::get<Launch>(lowered.steps.back());
        const std::string kernel = launch.kernel->name;
        launches.insert(text(kernel.substr(0, kernel.rfind('_')), ' ', launch.threads));
        const auto got = session.run(*program, inputs);
        REQUIRE(got.ok());
        return got->front();
      };
      CAPTURE(std::string(ir::name(dtype)));
      CAPTURE(head.extent);
      const ir::Tensor all = attend(150);
      for (const int64_t queries : {1, 4, 5, 8, 13, 16, 29, 32, 64, 90}) {
        CAPTURE(queries);
        const ir::Tensor some = attend(queries);
        CHECK(std::memcmp(some.data(), all.data(), static_cast<size_t>(some.bytes())) == 0);
      }
      const int width = head.extent <= 32 ? 32 : head.extent <= 64 ? 64 : 128;
      const std::string name = text("attention_", width, ' '), on_tensor_cores = text("tensor_", name);
      if (!is_on_tensor_cores(way)) {
        CHECK(launches == std::set{name + "32", name + "64", name + "128", name + "256"});
        continue;
      }
      CHECK(launches.size() == 2);
      CHECK(launches.count(on_tensor_cores + "128") == 1);
      CHECK(launches.count(text("tensor_attention_", width, "_parts ", width == 64 ? 128 : 64)) == 1);
    }
  }
}

TEST_CASE("attention to operands that begin at any element has the bits of aligned ones") {
  for (const Way& way : kWays) {
    const DType dtype = way.dtype;
    for (const HeadExtents& head : {HeadExtents{32, 32}, {64, 64}, {128, 128}}) {
      const AttentionModule attention(way, head);
      device::Device& device = *attention.device;
      conformance::Session session(device);
      const std::vector<ir::Tensor> inputs = {random_tensor(dtype, {1, 20, 2 * head.extent}, 1),
                                              random_tensor(dtype, {1, 40, 2 * head.extent}, 2),
                                              random_tensor(dtype, {1, 40, 2 * head.extent}, 3)};
      const auto program = conformance::compile(*attention.module, inputs);
      REQUIRE(program.ok());
      const auto wanted = session.run(*program, inputs);
      REQUIRE(wanted.ok());
      for (const uint64_t first : {1, 2, 3, 4}) {
        std::vector<device::View> moved;
        device::CommandList list;
        for (const ir::Tensor& each : inputs) {
          const device::View wide = conformance::empty_like(device, dtype, {each.elements() + 8});
          moved.push_back(device::View::contiguous(wide.buffer, dtype, each.extents(),
                                                   first * static_cast<uint64_t>(ir::size_of(dtype))));
          list.copy(conformance::upload(device, each), moved.back());
        }
        REQUIRE(session.submit(list).ok());
        const auto got = session.run(*program, moved);
        REQUIRE(got.ok());
        CHECK(conformance::same_bits(got->front(), wanted->front()));
      }
    }
  }
}

TEST_CASE("a plan says whether attention is computed on tensor cores: where the image has these kernels") {
  for (const Way& way : kWays) {
    const AttentionModule attention(way, {64, 64});
    const auto plan =
        attention.module->plan({{{1, 9, 128}, {1, 40, 128}, {1, 40, 128}}}, UINT64_MAX, NoLocksHeld());
    REQUIRE(plan.ok());
    CHECK(
        plan->nodes[0].path ==
        text(is_on_tensor_cores(way) ? "tensor_attention_64_parts_" : "attention_64_", ir::name(way.dtype)));
  }
}

}  // namespace
}  // namespace heddle::cuda
