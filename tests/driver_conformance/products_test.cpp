// Products of more rows than a driver's kernels for few rows take.
#include <cstdlib>
#include <limits>

#include "device/plain_source_fixture.h"
#include "driver_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

using ir::DType;

struct ManyRows {
  int64_t m, k, n;
  bool turned = false;
  int64_t batches = 1;
  bool computed = false;        // the second matrix is an input, too
  std::string activation = "";  // with it, it has a bias and a residual
};

struct Asked {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
};

// A row with an infinity, one with what is no number and one with the greatest number, whose products are
// small enough.
void put_extremes(ir::Tensor& x, int64_t k) {
  auto* const data = static_cast<float*>(x.mutable_data());
  data[k] = std::numeric_limits<float>::infinity();
  data[2 * k + 1] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < k; ++i) data[3 * k + i] = i == 2 ? std::numeric_limits<float>::max() / 4 : 0.0F;
}

Asked asked_of(const ManyRows& q) {
  ir::Builder b;
  Asked made;
  const auto input = [&](const ir::Extents& extents) {
    made.inputs.push_back(random_tensor(DType::kF32, extents, static_cast<uint32_t>(made.inputs.size() + 1)));
    return b.input("in" + std::to_string(made.inputs.size()), made.inputs.back().type());
  };
  const auto weight = [&](const ir::Extents& extents) {
    return b.constant(random_tensor(DType::kF32, extents, 9));
  };
  if (q.batches > 1) {
    const ir::ValueId x = input({q.batches, q.m, q.k});
    const ir::Extents y = {q.batches, q.k, q.n};
    b.output(*b.node("MatMul", {x, q.computed ? input(y) : weight(y)}));
  } else {
    const bool ends = !q.activation.empty();
    const ir::ValueId x = input({q.m, q.k});
    const ir::ValueId w = weight(q.turned ? ir::Extents{q.n, q.k} : ir::Extents{q.k, q.n});
    const ir::ValueId bias = ends ? weight({q.n}) : ir::kNoValue;
    const ir::ValueId residual = ends ? input({q.m, q.n}) : ir::kNoValue;
    b.output(*b.node("Linear", {x, w, bias, residual},
                     {{"trans_w", int64_t{q.turned}}, {"activation", q.activation}}));
  }
  made.graph = *b.take();
  if (q.activation.empty()) put_extremes(made.inputs[0], q.k);  // others may make other things of infinities
  return made;
}

// As it comes, and one element behind where memory is aligned.
Result<std::vector<ir::Tensor>> moved_run(device::Device& device, Session& session,
                                          const Ref<const device::Program>& program,
                                          const std::vector<ir::Tensor>& inputs) {
  std::vector<device::View> views;
  device::CommandList list;
  for (const ir::Tensor& each : inputs) {
    const device::View room = empty_like(device, DType::kF32, {each.elements() + 1});
    views.push_back(device::View::contiguous(room.buffer, DType::kF32, each.extents(), sizeof(float)));
    list.copy(upload(device, each), views.back());
  }
  HEDDLE_TRY(session.submit(list));
  return session.run(program, views);
}

DRIVER_TEST(products_of_many_rows,
            "products of many rows have the reference's values, wherever their operands lie") {
  for (const ManyRows& q : {
           ManyRows{.m = 97, .k = 64, .n = 36},
           ManyRows{.m = 200, .k = 384, .n = 96, .turned = true, .activation = "gelu"},
           ManyRows{.m = 130, .k = 320, .n = 70, .activation = "tanh"},
           ManyRows{.m = 101, .k = 77, .n = 33, .turned = true},
           ManyRows{.m = 100, .k = 96, .n = 40, .batches = 3},
           ManyRows{.m = 100, .k = 128, .n = 40, .batches = 3, .computed = true},
           ManyRows{.m = 520, .k = 64, .n = 520},  // as many tiles as a GPU has multiprocessors
           ManyRows{.m = 765, .k = 64, .n = 704},
       }) {
    CAPTURE(text(q.m, ' ', q.k, ' ', q.n));
    constexpr int64_t kForCards = 500;  // rows; the double's GPU has four multiprocessors
    if (q.m > kForCards && std::getenv("HEDDLE_TEST_CARD") == nullptr) continue;
    const Asked asked = asked_of(q);
    HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(asked.graph, asked.inputs));
    HEDDLE_TRY_ASSIGN(const auto module,
                      device.load(asked.graph, {}, device::plain_source(device), NoLocksHeld()));
    HEDDLE_TRY_ASSIGN(const auto program, compile(*module, asked.inputs));
    Session session(device);
    HEDDLE_TRY_ASSIGN(const auto got, session.run(program, asked.inputs));
    CHECK(difference(got[0], wanted[0], {1e-5, 1e-4}) == "");
    if (!device.traits().binding.offsets) continue;
    HEDDLE_TRY_ASSIGN(const auto moved, moved_run(device, session, program, asked.inputs));
    CHECK(difference(moved[0], wanted[0], {1e-5, 1e-4}) == "");
  }
  return {};
}

}  // namespace
}  // namespace heddle::conformance
