// executables.h: programs by (model, types of all inputs): each compiled once, however many threads ask.
//
//   What       A OnceMap with a byte budget. A hit builds no key, allocates nothing and takes no lock.
//   Threads    Any.
//   Blocks     find_or_compile(), on a miss, as long as the compilation; every thread that asks for the same
//              key waits for the same one, until its deadline. The thread that compiles has none.
//   Changes    Whoever keeps programs outside of here asks changes() whether some have been dropped since;
//              then the function of on_change() has been called, or soon is.
//   Memory     A compilation runs no pressure callbacks: its failure does, in Runtime::find_program().
//   Errors     A failed compilation reaches all waiters and is not kept. A shape that needs more than
//              bytes_max is exhausted.
//   Lifetime   A Ref keeps its program after eviction, and through it the model's weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/once_map.h"
#include "device/device.h"
#include "runtime/ids.h"
#include "runtime/options.h"

namespace heddle::runtime {

class Executables {
 public:
  struct Views {
    ModelId model;
    std::span<const device::View> inputs;
  };
  struct Key {
    Key(const Key&) = default;
    explicit Key(const Views& views);
    Key(ModelId m, std::vector<ir::ConcreteType> i) : model(m), inputs(std::move(i)) {}
    ModelId model;
    std::vector<ir::ConcreteType> inputs;
    friend bool operator==(const Key& a, const Key& b) = default;
    friend bool operator==(const Key& a, const Views& b);
    friend std::string to_string(const Key& key);
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Key& key) const;
    size_t operator()(const Views& views) const;
  };
  using Map = OnceMap<Key, device::Program, Hash>;
  using Made = Map::Made;
  using Stats = Map::Stats;
  explicit Executables(const Options& options)
      : programs_({options.executable_count, options.executable_bytes}) {}

  // `bytes_max`: what weights, intermediates and outputs of one run may need. `check` runs before a
  // compilation only: what it looks at has been found right whenever there is a program for it.
  template <class Check>
  Result<Ref<const device::Program>> find_or_compile(ModelId model, const device::Module& module,
                                                     std::span<const device::View> inputs, uint64_t bytes_max,
                                                     Deadline deadline, Check&& check) {
    bool made = false;
    const auto make = [&]() -> Result<Made> {
      HEDDLE_TRY(check());
      made = true;
      return compile(module, extents_of(inputs), bytes_max);
    };
    auto program = programs_.get_or_make(Views{model, inputs}, make, deadline);
    if (made) [[unlikely]]
      note_change();  // others may have been evicted
    return program;
  }
  // Null where it is not compiled. Blocks never.
  Ref<const device::Program> peek(ModelId model, std::span<const device::View> inputs) const {
    return programs_.peek(Views{model, inputs});
  }
  // Extents of inputs that have the model's dtypes, found right.
  Result<Ref<const device::Program>> find_or_compile(ModelId model, const device::Module& module,
                                                     std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                                     Deadline deadline);
  void forget(ModelId model);
  Stats stats() const { return programs_.stats(); }
  uint64_t changes() const { return changes_.load_seq_cst(); }
  void on_change(std::function<void()> told) {
    told_ = std::move(told);
  }  // once, before the first compilation

 private:
  static std::vector<ir::Extents> extents_of(std::span<const device::View> views);
  static Result<Made> compile(const device::Module& module, std::span<const ir::Extents> inputs,
                              uint64_t bytes_max);

  void note_change();

  Map programs_;
  // Counts. seq_cst, as lanes' words are: see OwnerWords.
  Atomic<uint64_t> changes_{0};
  std::function<void()> told_ = [] {};
};

}  // namespace heddle::runtime
