#include "api/scenarios.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "drivers/sim/schedule.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "runtime/runtime.h"

namespace heddle::scenarios {
namespace {

using device::View;

constexpr int kOperations = 20;
constexpr size_t kStreams = 3, kTensors = 4;
constexpr uint64_t kChoices = uint64_t{1} << 40;  // a lane of the seed that no queue has
const ir::Extents kExtents{4, 8};
constexpr size_t kElements = 32;
using Values = std::array<float, kElements>;

constexpr Deed kMixed[] = {Deed::kUpload, Deed::kFill,  Deed::kCopy,    Deed::kRun,
                           Deed::kRun,    Deed::kEvent, Deed::kDownload};
constexpr Deed kCopying[] = {Deed::kUpload, Deed::kFill, Deed::kCopy, Deed::kCopy, Deed::kDownload};
constexpr Deed kRunning[] = {Deed::kUpload, Deed::kRun, Deed::kRun, Deed::kDownload};
constexpr Deed kOrdering[] = {Deed::kRun, Deed::kEvent, Deed::kEvent, Deed::kDownload};
const Scenario kScenarios[] = {
    {"mix", "uploads, fills, copies, runs, events and downloads on three streams", kMixed},
    {"copies", "uploads, fills, copies and downloads", kCopying},
    {"runs", "runs of a model, with the uploads and downloads around them", kRunning},
    {"events", "runs on three streams that wait for each other's events", kOrdering},
    {"missing-dependency", "two queues write the same bytes, and neither waits for the other", {}},
};

// y = tanh(x w)
Result<ir::Graph> one_product() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {ir::Dim::symbol("batch"), 8}});
  ir::Tensor weight = ir::Tensor::zeros(ir::DType::kF32, {8, 8});
  for (int64_t i = 0; i < 64; ++i) weight.set(i, 0.05 * static_cast<double>(i % 7) - 0.1);
  HEDDLE_TRY_ASSIGN(const ir::ValueId product, b.node("MatMul", {x, b.constant(weight)}));
  HEDDLE_TRY_ASSIGN(const ir::ValueId y, b.node("Tanh", {product}));
  b.output(y);
  return b.take();
}

// From hold() to the end of the scope, or to release().
class Hold {
 public:
  explicit Hold(sim::SimDevice& device) : device_(device) { device_.hold(); }
  ~Hold() { device_.release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  sim::SimDevice& device_;
};

class Player {
 public:
  Player(const Ref<sim::SimDevice>& device, uint64_t seed) : device_(device), choices_(seed, kChoices) {}

  Status prepare() {
    runtime::Options options;
    options.own_governor = true;  // replays beside this one are none of its schedule
    HEDDLE_TRY_ASSIGN(runtime_, runtime::Runtime::make(device_, options));
    HEDDLE_TRY_ASSIGN(graph_, one_product());
    HEDDLE_TRY_ASSIGN(model_, runtime_->load(graph_));
    for (size_t i = 0; i < kStreams; ++i) {
      HEDDLE_TRY_ASSIGN(auto lease, runtime_->streams().lease());
      streams_.push_back(std::move(lease));
    }
    for (size_t i = 0; i < kTensors; ++i) {
      HEDDLE_TRY_ASSIGN(View made, runtime_->allocate(ir::DType::kF32, kExtents));
      tensors_.push_back({std::move(made), {}});
    }
    return {};
  }

  Status hand_in(std::span<const Deed> deeds) {
    const Hold hold(*device_);
    for (size_t i = 0; i < kTensors; ++i) HEDDLE_TRY(count(upload(stream(), tensors_[i])));
    for (int i = 0; i < kOperations; ++i) HEDDLE_TRY(count(one_of(deeds)));
    for (Tracked& each : tensors_) HEDDLE_TRY(count(download(stream(), each)));
    return {};
  }

  // Against the rules: what the runtime would not do.
  Status break_a_rule() {
    HEDDLE_TRY_ASSIGN(const auto one, device_->make_queue(NoLocksHeld{}));
    HEDDLE_TRY_ASSIGN(const auto other, device_->make_queue(NoLocksHeld{}));
    device::CommandList first, second;
    first.fill(tensors_[0].view, 1);
    second.fill(tensors_[0].view, 2);
    {
      const Hold hold(*device_);
      HEDDLE_TRY(count(one->submit(first, 1, NoLocksHeld{})));
      HEDDLE_TRY(count(other->submit(second, 1, NoLocksHeld{})));
    }
    device_->await_idle();
    HEDDLE_TRY(one->timeline()->wait(1, over()));
    return other->timeline()->wait(1, over());
  }

  // What has not come when the device has nothing left to do will not come.
  Status await() {
    device_->await_idle();
    return runtime_->synchronize(over());
  }

  void compare(Outcome& outcome) const {
    outcome.operations = operations_;
    if (!outcome.status.ok()) return;
    for (const Tracked& each : downloads_) {
      ++outcome.values_checked;
      if (is_close(each)) ++outcome.values_right;
    }
  }
  int operations() const { return operations_; }

 private:
  struct Tracked {
    View view;
    Values values;  // that it has once all that was handed in so far is over
  };

  static Deadline over() { return Deadline::at(TimePoint()); }
  static View host_view(Values& values) {
    return View::contiguous(reinterpret_cast<std::byte*>(values.data()), ir::DType::kF32, kExtents);
  }
  static bool is_close(const Tracked& each) {
    const auto* got = reinterpret_cast<const float*>(each.view.host());
    for (size_t i = 0; i < kElements; ++i) {
      if (!(std::abs(got[i] - each.values[i]) < 1e-4F)) return false;
    }
    return true;
  }

  Status count(Status status) {
    if (status.ok()) ++operations_;
    return status;
  }
  runtime::Stream& stream() { return *streams_[choices_.below(kStreams)].stream(); }
  Tracked& tensor() { return tensors_[choices_.below(kTensors)]; }

  Status one_of(std::span<const Deed> deeds) {
    runtime::Stream& on = stream();
    switch (deeds[choices_.below(deeds.size())]) {
      case Deed::kUpload:
        return upload(on, tensor());
      case Deed::kFill: {
        Tracked& to = tensor();
        const double value = 0.125 * static_cast<double>(choices_.below(16));
        to.values.fill(static_cast<float>(value));
        return runtime_->fill(on, to.view, value);
      }
      case Deed::kCopy: {
        const size_t from = choices_.below(kTensors),
                     to = (from + 1 + choices_.below(kTensors - 1)) % kTensors;
        tensors_[to].values = tensors_[from].values;
        return runtime_->copy(on, tensors_[from].view, tensors_[to].view);
      }
      case Deed::kRun: {
        const size_t from = choices_.below(kTensors),
                     to = (from + 1 + choices_.below(kTensors - 1)) % kTensors;
        return run(on, tensors_[from], tensors_[to]);
      }
      case Deed::kEvent:
        return runtime_->wait(on, stream().record());
      case Deed::kDownload:
        break;
    }
    return download(on, tensor());
  }

  Status upload(runtime::Stream& on, Tracked& to) {
    for (float& value : to.values) value = 0.01F * static_cast<float>(choices_.below(200)) - 1;
    return runtime_->copy(on, host_view(to.values), to.view);
  }

  Status download(runtime::Stream& on, const Tracked& from) {
    HEDDLE_TRY_ASSIGN(View staging,
                      runtime_->allocate(ir::DType::kF32, kExtents, device::MemoryKind::staging));
    downloads_.push_back({staging, from.values});
    return runtime_->copy(on, from.view, staging);
  }

  Status run(runtime::Stream& on, Tracked& from, Tracked& to) {
    const ir::Tensor in = ir::Tensor::of<float>(ir::DType::kF32, kExtents, from.values);
    HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph_, std::span(&in, 1)));
    for (size_t i = 0; i < kElements; ++i)
      to.values[i] = static_cast<float>(wanted[0].get(static_cast<int64_t>(i)));
    runtime::Call call;
    call.inputs = {&from.view, 1};
    call.outputs = {&to.view, 1};
    call.stream = &on;
    call.wait = false;
    return runtime_->run(*model_, call).status();
  }

  const Ref<sim::SimDevice> device_;
  sim::Schedule choices_;
  ir::Graph graph_;
  Ref<runtime::Runtime> runtime_;
  Ref<runtime::Model> model_;
  std::vector<runtime::StreamLease> streams_;
  std::vector<Tracked> tensors_, downloads_;
  int operations_ = 0;
};

}  // namespace

std::span<const Scenario> all() { return kScenarios; }

Outcome play(const Scenario& scenario, const Ref<sim::SimDevice>& device, uint64_t seed) {
  Outcome outcome;
  Player player(device, seed);
  outcome.status = player.prepare();
  if (outcome.status.ok()) {
    outcome.status = scenario.deeds.empty() ? player.break_a_rule() : player.hand_in(scenario.deeds);
    const Status late = player.await();  // also after a failure: what was handed in before goes on
    if (outcome.status.ok()) outcome.status = late;
  }
  player.compare(outcome);
  outcome.history = device->history();
  device->faults().reset();  // one that lasts would keep them again
  device->deliver_lost();    // the runtime's end waits for them
  return outcome;
}

}  // namespace heddle::scenarios
