// primitive.h: one prepared oneDNN primitive that any number of threads run at once.
//
//   What       oneDNN wants a memory object per operand and a stream: making them costs more than running a
//              small primitive. A Primitive keeps sets of them (one per thread that runs it at the same time,
//              up to the Engine's `runs_at_once`) and only changes their addresses.
//   Spread     A thread looks for a set first where it looked last time, and threads begin a line apart.
//   Invariant  Immutable but for the kept sets. A set is used by one thread at a time: taken by exchange,
//              given back by compare-and-swap.
//   Blocks     Never; the first run of each concurrent thread allocates a set.
//   Errors     run(): internal when oneDNN fails.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic.h"
#include "base/status.h"
#include "drivers/host/onednn/engine.h"

namespace heddle::host {

class Primitive {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };

  // `arguments` without the scratchpad, which is always last in run() and may be null when scratch_bytes() is
  // 0.
  static Result<Ref<const Primitive>> make(const Engine& engine, const dnnl::primitive& primitive,
                                           const dnnl::memory::desc& scratchpad,
                                           std::vector<Argument> arguments, std::string implementation);
  template <class Desc, class P>
  static Result<Ref<const Primitive>> make(const Engine& engine, const Desc& desc,
                                           std::vector<Argument> arguments) {
    HEDDLE_TRY_ASSIGN(P primitive, caught("making a primitive", [&] { return P(desc); }));
    return make(engine, primitive, desc.scratchpad_desc(), std::move(arguments), desc.impl_info_str());
  }
  Primitive(const Engine& engine, dnnl::primitive primitive, std::vector<Argument> arguments,
            uint64_t scratch_bytes, std::string implementation)
      : engine_(engine.cpu),
        primitive_(std::move(primitive)),
        arguments_(std::move(arguments)),
        scratch_bytes_(scratch_bytes),
        implementation_(std::move(implementation)),
        kept_(std::bit_ceil(static_cast<size_t>(std::max(engine.runs_at_once, 1)))) {}
  ~Primitive();
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  // One address per argument, in their order, and the scratchpad's.
  Status run(std::span<const void* const> addresses) const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }
  const std::string& implementation() const { return implementation_; }  // oneDNN's name of it
  static constexpr uint64_t kResidentBytes = 16 << 10;  // generated code and one set, roughly

 private:
  struct Set;

  static size_t begin_of_this_thread();  // where it looks first, from 1
  template <class Look>
  void look_around(Look look) const;  // until it is true
  std::unique_ptr<Set> take() const;
  void give(std::unique_ptr<Set> set) const;
  Result<std::unique_ptr<Set>> make_set() const;

  inline static constinit Atomic<uint32_t> threads_{0};  // numbers them as they come: orders nothing
  inline static constinit thread_local uint32_t begin_ = 0;

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  uint64_t scratch_bytes_;
  std::string implementation_;
  // An idle set, or null; the thread that exchanges it out owns it. As many as a power of two.
  mutable std::vector<Atomic<Set*>> kept_;
};

}  // namespace heddle::host
