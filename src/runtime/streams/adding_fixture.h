// adding_fixture.h: runs that a stream may hold back. Each adds one to what the run before it has written.
//
//   What       Adding has a device whose streams are a vendor's, too, and makes streams. An AddingChain has
//              runs of its own. Its value is its start and their number, whatever else its stream does.
//   Threads    A chain is one thread's. The rest: any.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "base/yield.h"
#include "device/row_faults.h"
#include "runtime/memory/allocator.h"
#include "runtime/streams/roster.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime::test {

struct Adding {
  static constexpr int kTogether = 4;
  Adding()
      : device(std::make_shared<TestDevice>(
            TestOptions{.asynchronous = true, .runs_together = kTogether, .shows_native = true})),
        allocator(*Allocator::make(device, {})),
        roster(device, Clock::real()) {
    device->set_kernel("add one", [](const device::Run& run) {
      const auto* const from = reinterpret_cast<const float*>(at(run.inputs[0]));
      auto* const to = reinterpret_cast<float*>(at(run.outputs[0]));
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) to[i] = from[i] + 1;
      return Status();
    });
    device->set_submit([this] {
      sent.add_release(1);
      return Status();
    });
    const ir::Extents extents{1, 4};
    module = *device->load(graph_named("add one"), {}, allocator, {});
    program = *module->compile({&extents, 1}, {});
  }

  Atomic<uint64_t> sent{0};  // submissions that a queue was given
  Ref<TestDevice> device;
  Ref<Allocator> allocator;
  Roster roster;
  Ref<const device::Module> module;
  Ref<const device::Program> program;
};

class AddingChain {
 public:
  AddingChain(Adding& owner, float start)
      : program_(owner.program), arena_(*owner.allocator->allocate(64)), start_(start) {
    for (View& view : values_)
      view = View::contiguous(*owner.allocator->allocate(16), ir::DType::kF32, {1, 4});
    *reinterpret_cast<float*>(values_[0].host()) = start;
  }
  bool run(Turn& turn) {
    const View &from = values_[runs_ % 2], &to = values_[(runs_ + 1) % 2];
    ++runs_;
    device::CommandList list;
    list.run(program_, arena_, {from}, {to}, std::make_shared<device::RowFaults>(0));
    Submission extras;
    extras.joins = true;
    if (const auto joined = turn.try_join(list, extras)) return joined->ok();
    return turn.submit(std::move(list), std::move(extras)).ok();
  }
  bool run(Stream& stream, int times) {
    bool all = true;
    for (int i = 0; i < times; ++i) {
      Turn turn = *stream.turn();
      all = run(turn) && all;
    }
    return all;
  }
  // Once its runs are over.
  bool is_right() const {
    return *reinterpret_cast<const float*>(values_[runs_ % 2].host()) == start_ + static_cast<float>(runs_);
  }

 private:
  const Ref<const device::Program> program_;
  const Ref<device::Buffer> arena_;
  std::array<View, 2> values_;
  const float start_;
  size_t runs_ = 0;
};

// While `chains` threads submit to a stream another one asks for its native one. Null, or what was wrong.
inline const char* native_is_asked_for(Adding& owner, int chains, int runs) {
  const Ref<Stream> stream = *owner.roster.make(1);
  const uint64_t before = owner.sent.load_acquire();
  std::vector<std::unique_ptr<AddingChain>> all;
  for (int i = 0; i < chains; ++i) all.push_back(std::make_unique<AddingChain>(owner, 100.0F * float(i)));
  Atomic<bool> is_known{false};
  Atomic<int> held_back_later{0}, not_sent{0}, refused{0};
  run_together(chains + 1, [&](int i) {
    if (i == chains) {
      while (stream->last_submitted() == 0) give_way();
      const uint64_t given = stream->last_submitted();
      if (stream->native() == nullptr) refused.add_relaxed(1);
      is_known.store_release(true);
      not_sent.add_relaxed(owner.sent.load_acquire() - before < given ? 1 : 0);
      held_back_later.add_relaxed(stream->timeline()->holds_back() ? 1 : 0);
      return;
    }
    for (int run = 0; run < runs; ++run) {
      const bool knows = is_known.load_acquire();
      Turn turn = *stream->turn();
      refused.add_relaxed(all[static_cast<size_t>(i)]->run(turn) ? 0 : 1);
      held_back_later.add_relaxed(knows && stream->timeline()->holds_back() ? 1 : 0);
    }
  });
  if (!stream->synchronize(Deadline::never()).ok() || refused.load_relaxed() != 0) return "a run was refused";
  if (not_sent.load_relaxed() != 0) return "what was held back is not with the native stream";
  if (held_back_later.load_relaxed() != 0) return "something is held back once the native stream is known";
  for (const auto& chain : all) {
    if (!chain->is_right()) return "each run reads what the one before it wrote";
  }
  return nullptr;
}

// The owner of a stream drops it while it holds back the last of `runs`. Others wait for them who have its
// timeline alone, and sweep as the reaper does: the last reference may be theirs. Null, or what was wrong.
inline const char* owner_forgets_stream(Adding& owner, int runs) {
  AddingChain chain(owner, 5);
  Ref<Stream> stream = *owner.roster.make(1);
  device::Point end{stream->timeline(), 0};
  Atomic<bool> is_given{false}, is_over{false};
  Atomic<int> wrong{0};
  run_together(3, [&](int i) {
    if (i == 0) {
      wrong.add_relaxed(chain.run(*stream, runs) ? 0 : 1);
      end.value = stream->last_submitted();
      is_given.store_release(true);
      stream.reset();
    } else if (i == 1) {
      while (!is_given.load_acquire()) give_way();
      wrong.add_relaxed(end.timeline->wait(end.value, Deadline::never()).ok() && chain.is_right() ? 0 : 1);
      is_over.store_release(true);
    } else {
      while (!is_over.load_acquire()) {
        owner.roster.drop_finished();
        give_way();
      }
    }
  });
  if (wrong.load_relaxed() != 0) return "each run reads what the one before it wrote, and is over";
  return owner.roster.living().empty() ? nullptr : "a stream is left";
}

}  // namespace heddle::runtime::test
