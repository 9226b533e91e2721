// generator.h: random numbers of device "heddle": Philox, one sequence a stream.
//
//   What       A draw of n numbers on stream s takes the next n of sequence (seed, s). So threads that own
//              their streams get the same numbers for the same seed however they interleave.
//   Source     Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); the engine is PyTorch's.
//   Threads    Any.
#pragma once

#include <ATen/core/Generator.h>

#include <array>
#include <mutex>

#include "device.h"
#include "stream_names.h"

namespace heddle::torch_backend {

class Generator final : public c10::GeneratorImpl {
 public:
  static constexpr size_t kStreams = StreamNames::kFirstMade + StreamNames::kMade;

  explicit Generator(c10::DeviceIndex index);

  struct Draw {
    uint64_t seed, sequence, offset;
  };
  Draw take(int64_t stream, uint64_t numbers);  // in steps of four, as Philox makes them

  void set_current_seed(uint64_t seed) override;  // all sequences start again
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;  // of all sequences
  uint64_t get_offset() const override;       // of the calling thread's stream
  // i64[1 + kStreams] as bytes: the seed and each sequence's offset.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  Generator* clone_impl() const override;
  struct State {
    uint64_t seed = c10::default_rng_seed_val;
    std::array<uint64_t, kStreams> offsets{};
  };
  mutable std::mutex lock_;
  State state_;
};

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);

}  // namespace heddle::torch_backend
