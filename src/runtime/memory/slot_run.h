// slot_run.h: the commands of a run whose operands all lie in one slot. They are made once.
//
//   What       The next run of the same program with the same inputs finds its commands as they are: a batch
//              does not make views, lists and references anew while its callers wait.
//   Invariant  A slot that nobody uses keeps no program: the model's weights may go.
//   Threads    Its slot's owner of the moment.
//   Lifetime   Its slot's. What names the slot's buffers is dropped before one of them grows.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/command_list.h"

namespace heddle::runtime {

class SlotRun {
 public:
  // A program is for extents and dtypes: of the inputs their places are left to compare.
  bool is_for(const Ref<const device::Program>& program, std::span<const device::View> inputs) const {
    const auto is_same = [](const device::View& made, const device::View& given) {
      return made.buffer == given.buffer && made.offset == given.offset;
    };
    return !made_for_.owner_before(program) && !program.owner_before(made_for_) &&
           std::equal(inputs.begin(), inputs.end(), inputs_.begin(), inputs_.end(), is_same);
  }
  // `list` has one Run.
  void make(const Ref<const device::Program>& program, std::span<const device::View> inputs,
            device::CommandList list, std::vector<device::View> outputs) {
    inputs_.assign(inputs.begin(), inputs.end());
    outputs_ = std::move(outputs);
    list_ = std::move(list);
    made_for_ = program;
    rest();
  }
  // Stays as it is until rest(), make() or clear().
  const device::CommandList& begin(Ref<const device::Program> program, Ref<device::RowFaults> faults) {
    set(std::move(program), std::move(faults));
    return list_;
  }
  const std::vector<device::View>& outputs() const { return outputs_; }
  void rest() { set(nullptr, nullptr); }
  void clear() { *this = {}; }

 private:
  void set(Ref<const device::Program> program, Ref<device::RowFaults> faults) {
    for (device::Command& command : list_) {
      if (auto* run = std::get_if<device::Run>(&command)) {
        run->program = std::move(program);
        run->row_faults = std::move(faults);
      }
    }
  }

  std::weak_ptr<const device::Program> made_for_;  // compared, and never locked
  std::vector<device::View> inputs_, outputs_;     // where the host writes and reads them
  device::CommandList list_;
};

}  // namespace heddle::runtime
