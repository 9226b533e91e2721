#include "drivers/cuda/lowering/chain_source.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "drivers/cuda/kernels/compiled_chain.h"

namespace heddle::cuda {
namespace {

using How = ChainSource::How;

constexpr const char* kOpNames[] = {
    "Select",
#define HEDDLE_FLOATS(name, op) #op,
#define HEDDLE_NUMBERS(name, op) #op,
#define HEDDLE_NUMBERS_U64(name, op) #op,
#define HEDDLE_INTEGERS(name, op) #op,
#include "drivers/cuda/kernels/scalars.inc"
#undef HEDDLE_FLOATS
#undef HEDDLE_NUMBERS
#undef HEDDLE_NUMBERS_U64
#undef HEDDLE_INTEGERS
};

// By Type.
constexpr const char* kOfType[] = {"As<float>",
                                   "AsHalf<from_f16, to_f16>",
                                   "AsHalf<from_bf16, to_bf16>",
                                   "As<double>",
                                   "As<int8_t>",
                                   "As<uint8_t>",
                                   "As<int16_t>",
                                   "As<int32_t>",
                                   "As<int64_t>",
                                   "As<uint16_t>",
                                   "As<uint32_t>",
                                   "As<uint64_t>",
                                   "AsBool"};
static_assert(std::size(kOfType) == static_cast<size_t>(Type::kBool) + 1);

const char* held(Type type) { return kOfType[static_cast<size_t>(type)]; }

class SourceWriter {
 public:
  SourceWriter(const ChainParams& params, bool floats) : p_(params), floats_(floats) {}

  ChainSourceText write() {
    lay_out();
    take_words();
    std::string& all = made_.source;
    all = text(
        "#include \"drivers/cuda/kernels/compiled_chain.h\"\nnamespace heddle::cuda {\nstruct Body {\n",
        "  using C = ", floats_ ? "float" : "int64_t", ";\n  static constexpr int kWords = ", words_.size(),
        ", kQuads = ", quads_, ", kPlaces = ", places_, ", kStrides = ", strides_,
        ";\n  static constexpr bool kEach = ", each_, ";\n");
    add_operands(all);
    add_results(all);
    add_compute(all);
    all += "};\n}  // namespace heddle::cuda\nHEDDLE_COMPILED_CHAIN(heddle::cuda::Body)\n";
    return std::move(made_);
  }

 private:
  static constexpr size_t kHeadWords = sizeof(CompiledHead) / sizeof(uint64_t);
  static_assert(sizeof(CompiledHead) % sizeof(uint64_t) == 0);

  const ChainSource& in(int i) const { return p_.in[i]; }
  bool is_fixed(int i) const {
    const int64_t* const strides = in(i).strides;
    return in(i).how == How::kOne && std::all_of(strides, strides + kAxes, [](int64_t s) { return s == 0; });
  }
  bool has_place(int i) const { return in(i).how != How::kFlat && !is_fixed(i); }
  // The numbers of attributes are parameters, but for flags, on which operators branch.
  bool are_written_out(const ChainStep& step) const {
    const auto is_flag = [](float x) { return bits_as<uint32_t>(x) == 0 || x == 1; };  // -0 is none
    return is_flag(step.a) && is_flag(step.b);
  }

  // Which word is what.
  void lay_out() {
    for (int n = 0; n < p_.steps; ++n) {
      const ChainStep& step = p_.step[n];
      if (step.out != kNowhere) results_ = std::max(results_, step.out + 1);
      for (int k = 0; k < step.operands; ++k) {
        if (step.x[k] != kLast && step.x[k] >= kFirstNumber)
          numbers_ = std::max(numbers_, step.x[k] - kFirstNumber + 1);
      }
    }
    for (int i = 0; i < p_.sources; ++i) {
      if (has_place(i)) ++places_;
      each_ = each_ || in(i).how == How::kEach;
    }
    first_number_ = p_.sources + results_;
  }

  void take_words() {
    words_.assign(static_cast<size_t>(first_number_), 0);
    words_.insert(words_.end(), p_.numbers, p_.numbers + numbers_);
    for (int n = 0; n < p_.steps; ++n) {
      const ChainStep& step = p_.step[n];
      if (!are_written_out(step))
        words_.push_back(bits_as<uint32_t>(step.a) | uint64_t{bits_as<uint32_t>(step.b)} << 32);
    }
    strides_ = static_cast<int>(words_.size());
    for (int i = 0; i < p_.sources; ++i) {
      if (!has_place(i)) continue;
      for (const int64_t stride : in(i).strides) words_.push_back(static_cast<uint64_t>(stride));
    }
    // Long chains have enough to do with one at a time, and compile in half the time.
    constexpr int kFewOperands = 4, kFewSteps = 12, kAtATime = 2;
    const bool takes_more = p_.sources <= kFewOperands && p_.steps <= kFewSteps && !each_;
    quads_ = takes_more ? kAtATime : 1;
    CompiledHead head;
    head.count = p_.count;
    head.quads = made_.quads = p_.quads > 1 ? quads_ : 1;
    head.axes = p_.axes;
    std::vector<uint64_t>& params = made_.params;
    params.resize(kHeadWords);
    std::memcpy(params.data(), &head, sizeof head);
    params.insert(params.end(), words_.begin(), words_.end());
    for (int i = 0; i < first_number_; ++i)
      (i < p_.sources ? made_.operands : made_.results).push_back(kHeadWords + static_cast<size_t>(i));
  }

  void add_operands(std::string& to) const {
    std::string members, calls;
    for (int i = 0, place = 0; i < p_.sources; ++i) {
      const bool single = in(i).how == How::kOne;
      members += text("    ", single ? "Single<" : "Quad<", held(in(i).type), "::Word> x", i, ";\n");
      calls += text("    f(ChainOperand<", i, ", ", held(in(i).type), ", Lies::", lies(i));
      if (has_place(i)) calls += text(", ", strides_ + kAxes * place++);
      calls += text(">(), to.x", i, ");\n");
    }
    to += text("  struct Operands {\n", members, "  };\n  template <class F>\n",
               "  static HEDDLE_DEVICE void each_operand(Operands& to, F f) {\n", calls, "  }\n");
  }
  const char* lies(int i) const {
    switch (in(i).how) {
      case How::kFlat:
        return "kFlat";
      case How::kRow:
        return "kRow";
      case How::kOne:
        return is_fixed(i) ? "kFixed" : "kOne";
      case How::kEach:
        return "kEach";
    }
    return "";
  }

  void add_results(std::string& to) const {
    std::string members, calls;
    for (int i = 0; i < results_; ++i) {
      members += text("    Quad<", held(p_.out[i].type), "::Word> y", i, ";\n");
      calls += text("    f(", p_.sources + i, ", to.y", i, ");\n");
    }
    to += text("  struct Results {\n", members, "  };\n  template <class F>\n",
               "  static HEDDLE_DEVICE void each_result(Results& to, F f) {\n", calls, "  }\n");
  }

  // Each value has a name of its own: whatever the interpreter keeps in registers is the compiler's business.
  void add_compute(std::string& to) const {
    to +=
        "  static HEDDLE_DEVICE void compute(const uint64_t* words, const Operands& from, int e, Results& "
        "to) {\n";
    std::vector<std::string> registers(static_cast<size_t>(std::max(p_.registers, p_.sources)));
    for (int i = 0; i < p_.sources; ++i) {
      registers[static_cast<size_t>(i)] = text('x', i);
      to += text("    const C x", i, " = ", held(in(i).type), "::read<C>(element(from.x", i, ", e));\n");
    }
    int word = first_number_ + numbers_;
    for (int n = 0; n < p_.steps; ++n) {
      const ChainStep& step = p_.step[n];
      std::string call = text("made<", kOpNames[static_cast<size_t>(step.op)], ", C>(");
      call += are_written_out(step) ? text("{", step.a != 0 ? "1" : "0", ", ", step.b != 0 ? "1" : "0", "}")
                                    : text("attributes_of(words[", word++, "])");
      for (int k = 0; k < step.operands; ++k) call += text(", ", operand(step.x[k], registers, n));
      to += rounded(step, n, call + ")");
      if (step.to != kNowhere) registers[step.to] = text('v', n);
    }
    to += "  }\n";
  }
  std::string operand(uint8_t x, const std::vector<std::string>& registers, int n) const {
    if (x == kLast) return text('v', n - 1);
    if (x >= kFirstNumber) return text("number_of<C>(words[", first_number_ + x - kFirstNumber, "])");
    return registers[x];
  }
  // What a step makes: rounded to its type, and as a result. What is rounded to a result's type has its bits.
  std::string rounded(const ChainStep& step, int n, const std::string& call) const {
    const bool rounds = step.rounds != (floats_ ? Type::kF32 : Type::kI64);
    std::string all;
    if (rounds) {
      all = text("    const auto w", n, " = ", held(step.rounds), "::write<C>(", call, ");\n    const C v", n,
                 " = ", held(step.rounds), "::read<C>(w", n, ");\n");
    } else {
      all = text("    const C v", n, " = ", call, ";\n");
    }
    if (step.out == kNowhere) return all;
    const Type type = p_.out[step.out].type;
    const std::string bits =
        rounds && type == step.rounds ? text('w', n) : text(held(type), "::write<C>(v", n, ')');
    return text(all, "    to.y", int{step.out}, ".x[e] = ", bits, ";\n");
  }

  const ChainParams& p_;
  const bool floats_;
  ChainSourceText made_;
  std::vector<uint64_t> words_;
  int results_ = 0, numbers_ = 0, places_ = 0, first_number_ = 0, strides_ = 0, quads_ = 1;
  bool each_ = false;
};

}  // namespace

ChainSourceText source_of(const ChainParams& params, bool floats) {
  return SourceWriter(params, floats).write();
}

}  // namespace heddle::cuda
