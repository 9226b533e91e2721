// step.h: one prepared piece of a program, and where its operands lie.
//
//   What       A Step is what lowering makes of a node: immutable after it was made, run by any number of
//              threads at once, each with its own RunContext. Operands name locations (arena offset, input,
//              output, constant), never addresses of a run.
//   Invariant  Operands are contiguous, row-major (but for channels_last), 64-byte aligned in the arena
//              (inputs and outputs: aligned to their element).
//   Errors     run() returns invalid only for what the data shows (an index out of range), naming the node;
//              where RunContext::row_faults is given and one row has the mistake, it is recorded for that row
//              instead (row_locator.h), and run() makes something of it that touches no other row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/buffer.h"
#include "device/row_faults.h"
#include "drivers/host/machine/team.h"
#include "ir/tensor_type.h"
#include "plan/placement.h"

namespace heddle::host {

struct Operand {
  using Location = plan::Place::Kind;
  Location location = Location::kNone;
  ir::DType dtype = ir::DType::kF32;
  ir::Extents extents;
  uint64_t offset = 0;                  // kArena: bytes; kInput, kOutput: index
  const std::byte* constant = nullptr;  // kConstant; kept alive by the module
  bool channels_last = false;           // [N, spatial.., C] in memory, extents as ever (channel_layout.h)
  bool narrow = false;                  // bf16 in memory, dtype kF32 (narrow_values.h)
  // What a product's operand is in a caller's memory, dtype kF32: kF16 or kBF16 (half_operands.h).
  std::optional<ir::DType> half = std::nullopt;

  bool present() const { return location != Location::kNone; }
  int64_t elements() const { return extents.elements(); }
  int64_t element_bytes() const { return narrow ? 2 : ir::size_of(dtype); }
  uint64_t bytes() const { return static_cast<uint64_t>(elements() * element_bytes()); }
};

struct RunContext {
  std::byte* arena;
  const std::byte* const* inputs;  // contiguous (the driver has compacted strided ones)
  std::byte* const* outputs;
  Team::Caller& caller;
  device::RowFaults* row_faults;  // null: a mistake in the data fails the run

  // For a step inside another, with operands of its own.
  RunContext inside(std::byte* arena_of, const std::byte* const* ins, std::byte* const* outs) const {
    return {arena_of, ins, outs, caller, row_faults};
  }

  template <class T = std::byte>
  const T* read(const Operand& o) const {
    return reinterpret_cast<const T*>(at(o));
  }
  template <class T = std::byte>
  T* write(const Operand& o) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(at(o)));
  }

 private:
  const std::byte* at(const Operand& o) const {
    switch (o.location) {
      case Operand::Location::kArena:
        return arena + o.offset;
      case Operand::Location::kInput:
        return inputs[o.offset];
      case Operand::Location::kOutput:
        return outputs[o.offset];
      case Operand::Location::kConstant:
        return o.constant;
      case Operand::Location::kNone:
        return nullptr;
    }
    return nullptr;
  }
};

// How a step is divided for a caller that is alone; for people, and for tests.
struct Sharing {
  int64_t pieces = 1;
  double balance = 1;  // the work, over what the cores could do while the busiest of them is at it
  std::string words;   // "4 rows x 4 panels over 16 cores"; "": there is but one core

  static Sharing whole() { return {1, 1, "whole"}; }
  static Sharing divided(int64_t pieces, double balance, std::string_view cut, int width) {
    const int64_t hundredths = static_cast<int64_t>(100 * balance + 0.5);
    return {pieces, balance,
            text(cut, " over ", std::min<int64_t>(pieces, width), " cores, ", hundredths, " % of ", width,
                 " busy")};
  }
};

class Step {
 public:
  virtual ~Step() = default;
  virtual Status run(const RunContext& context) const = 0;
  virtual uint64_t scratch_bytes() const {
    return 0;
  }  // arena bytes needed while it runs, placed by set_scratch before the first run
  virtual void set_scratch(uint64_t /*offset*/) {}
  // Whether the only output may be the memory of this operand: each place is written after it was last read.
  virtual bool may_write_over(size_t /*input*/) const { return false; }
  virtual uint64_t resident_bytes() const { return 256; }  // what keeping it costs
  virtual std::string path() const { return {}; }  // how it is computed, for people; "": there is one way
  virtual std::string way() const { return {}; }   // how it is cut and whether that was measured, likewise
  virtual Sharing sharing() const { return {}; }
};

}  // namespace heddle::host
