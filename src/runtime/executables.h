// executables.h: programs by (model, types of all inputs): each compiled once, however many threads ask.
//
//   What       A OnceMap with a byte budget. A hit builds no key, allocates nothing and takes no lock.
//   Threads    Any.
//   Blocks     find_or_compile(), on a miss, as long as the compilation; every thread that asks for the same
//              key waits for the same one, until its deadline. The thread that compiles has none.
//   Errors     A failed compilation reaches all waiters and is not kept. A shape that needs more than
//              bytes_max is exhausted.
//   Lifetime   A Ref keeps its program after eviction, and through it the model's weights.
#pragma once

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
    const auto make = [&]() -> Result<Made> {
      HEDDLE_TRY(check());
      return compile(module, extents_of(inputs), bytes_max);
    };
    return programs_.get_or_make(Views{model, inputs}, make, deadline);
  }
  // Extents of inputs that have the model's dtypes, found right.
  Result<Ref<const device::Program>> find_or_compile(ModelId model, const device::Module& module,
                                                     std::span<const ir::Extents> inputs, uint64_t bytes_max,
                                                     Deadline deadline);
  void forget(ModelId model);
  Stats stats() const { return programs_.stats(); }

 private:
  static std::vector<ir::Extents> extents_of(std::span<const device::View> views);
  static Result<Made> compile(const device::Module& module, std::span<const ir::Extents> inputs,
                              uint64_t bytes_max);

  Map programs_;
};

}  // namespace heddle::runtime
