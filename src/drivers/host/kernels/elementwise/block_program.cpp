#include "drivers/host/kernels/elementwise/block_program.h"

#include <algorithm>
#include <ranges>

namespace heddle::host {

namespace {

constexpr int64_t kLine = 64;

int64_t whole_lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

BlockProgram::Register BlockProgram::source(const Operand& operand) {
  const BlockKernel convert = is_native(operand.dtype) ? nullptr : load_block(operand.dtype);
  sources_.push_back({operand, Strided::broadcast(operand.extents, shape_), ir::size_of(operand.dtype),
                      convert, add_register()});
  return sources_.back().target;
}

BlockProgram::Register BlockProgram::emit(BlockKernel kernel, Register a, Register b, Register c,
                                          double alpha, double beta) {
  const Register d = add_register();
  instructions_.push_back({kernel, a, b, c, d, alpha, beta});
  return d;
}

void BlockProgram::result(Register value, const Operand& output) {
  const bool made =
      std::any_of(instructions_.begin(), instructions_.end(), [&](const auto& i) { return i.d == value; });
  const bool taken =
      std::any_of(results_.begin(), results_.end(), [&](const auto& r) { return r.value == value; });
  const bool direct = made && !taken && is_native(output.dtype);
  const Register target = direct ? value : emit(store_block(output.dtype), unrounded(value, output.dtype));
  results_.push_back({output, target, ir::size_of(output.dtype)});
}

// Storing rounds or wraps as the instruction did that made the value.
BlockProgram::Register BlockProgram::unrounded(Register value, ir::DType dtype) const {
  const BlockKernel wrap = wrap_block(dtype);
  const auto maker = std::ranges::find(instructions_, value, &Instruction::d);
  return wrap != nullptr && maker != instructions_.end() && maker->run == wrap ? maker->a : value;
}

void BlockProgram::drop_unread() {
  std::vector<bool> read(slots_.size(), false);
  for (const Result& r : results_) read[static_cast<size_t>(r.value)] = true;
  std::vector<Instruction> kept;
  for (const Instruction& instruction : std::views::reverse(instructions_)) {
    if (!read[static_cast<size_t>(instruction.d)]) continue;
    for (const Register r : {instruction.a, instruction.b, instruction.c}) {
      if (r >= 0) read[static_cast<size_t>(r)] = true;
    }
    kept.push_back(instruction);
  }
  instructions_.assign(kept.rbegin(), kept.rend());
}

bool BlockProgram::needs_slot(const Source& source) const {
  return source.load != nullptr || source.view.form != Strided::Form::kLinear;
}

void BlockProgram::finish() {
  drop_unread();
  assign_slots();
}

// A register's slot is free again after its last reader. Scalars are filled once and keep theirs.
void BlockProgram::assign_slots() {
  constexpr int kForever = INT32_MAX;
  std::vector<int> last(slots_.size(), -1);
  std::vector<bool> in_memory(slots_.size(), false);
  for (int i = 0; i < static_cast<int>(instructions_.size()); ++i) {
    const Instruction& instruction = instructions_[static_cast<size_t>(i)];
    for (Register r : {instruction.a, instruction.b, instruction.c}) {
      if (r >= 0) last[static_cast<size_t>(r)] = i;
    }
  }
  for (const Result& r : results_) in_memory[static_cast<size_t>(r.value)] = true;
  for (const Source& s : sources_) {
    in_memory[static_cast<size_t>(s.target)] = !needs_slot(s);
    if (s.view.form == Strided::Form::kScalar) last[static_cast<size_t>(s.target)] = kForever;
  }
  std::vector<int> free;
  const auto take = [&](Register r) {
    if (in_memory[static_cast<size_t>(r)]) return;
    if (free.empty()) free.push_back(slot_count_++);
    slots_[static_cast<size_t>(r)] = free.back();
    free.pop_back();
  };
  for (const Source& s : sources_) take(s.target);
  for (int i = 0; i < static_cast<int>(instructions_.size()); ++i) {
    const Instruction& instruction = instructions_[static_cast<size_t>(i)];
    take(instruction.d);  // before the operands' slots are freed: a kernel may widen its elements
    for (Register r = 0; r < static_cast<Register>(slots_.size()); ++r) {
      const bool over =
          last[static_cast<size_t>(r)] == i || (r == instruction.d && last[static_cast<size_t>(r)] < 0);
      if (over && slots_[static_cast<size_t>(r)] != kInMemory) free.push_back(slots_[static_cast<size_t>(r)]);
    }
  }
}

// Scratch: the registers' addresses, one slot for elements that wait to be converted, the slots.
int64_t BlockProgram::scratch_bytes() const {
  const int64_t addresses = whole_lines(static_cast<int64_t>(slots_.size() * sizeof(std::byte*)));
  return addresses + (slot_count_ + 1) * kRegisterBytes;
}

const std::byte* BlockProgram::load(const RunContext& context, const Source& source, int64_t begin,
                                    int64_t count, std::byte* slot, std::byte* staging) const {
  const std::byte* base = context.read(source.operand);
  const std::byte* bytes = nullptr;
  if (source.view.form == Strided::Form::kLinear) {
    bytes = base + begin * source.size;
  } else if (source.view.run_at(begin) >= count && source.view.form != Strided::Form::kScalar) {
    bytes = base + source.view.offset_of(begin) * source.size;
  } else {
    std::byte* to = source.load == nullptr ? slot : staging;
    source.view.copy(base, begin, count, source.size, to);
    bytes = to;
  }
  if (source.load == nullptr) return bytes;
  source.load({bytes, nullptr, nullptr, slot, count, 0, 0});
  return slot;
}

void BlockProgram::run(const RunContext& context, int64_t begin, int64_t end, std::byte* scratch) const {
  const int64_t addresses = whole_lines(static_cast<int64_t>(slots_.size() * sizeof(std::byte*)));
  const std::byte** registers = reinterpret_cast<const std::byte**>(scratch);
  std::byte* staging = scratch + addresses;
  std::byte* slots = staging + kRegisterBytes;
  for (size_t r = 0; r < slots_.size(); ++r) registers[r] = slots + slots_[r] * kRegisterBytes;
  const auto slot_of = [&](Register r) { return slots + slots_[static_cast<size_t>(r)] * kRegisterBytes; };
  for (const Source& s : sources_) {
    if (s.view.form == Strided::Form::kScalar)
      load(context, s, 0, std::min(kBlock, end - begin), slot_of(s.target), staging);
  }
  // Without intermediate registers nothing has to stay in the cache between instructions.
  const int64_t block = slot_count_ == 0 ? end - begin : kBlock;
  for (int64_t at = begin; at < end; at += block) {
    const int64_t count = std::min(block, end - at);
    for (const Source& s : sources_) {
      if (s.view.form == Strided::Form::kScalar) continue;
      std::byte* slot = needs_slot(s) ? slot_of(s.target) : nullptr;
      registers[s.target] = load(context, s, at, count, slot, staging);
    }
    for (const Result& r : results_) registers[r.value] = context.write(r.operand) + at * r.size;
    for (const Instruction& i : instructions_) {
      const std::byte* b = i.b < 0 ? nullptr : registers[i.b];
      const std::byte* c = i.c < 0 ? nullptr : registers[i.c];
      i.run({registers[i.a], b, c, const_cast<std::byte*>(registers[i.d]), count, i.alpha, i.beta});
    }
  }
}

}  // namespace heddle::host
