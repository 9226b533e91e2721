// fuzz_fixture.h: what the targets of libFuzzer share: decisions from bytes, and properties that end the run.
//
//   What       A target turns its bytes into inputs or into a history of calls, and states what has to hold.
//              What does not hold ends the process with words; libFuzzer then keeps the bytes.
//   Threads    One thread: libFuzzer's.
#pragma once

#include <heddle/heddle.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heddle::fuzz {

inline void must(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "ERROR: a property does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// Past the end of the bytes all decisions are 0.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : bytes_(data, size) {}

  bool over() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }
  size_t below(size_t bound) { return byte() % bound; }  // bound: at most 256
  bool flag() { return (byte() & 1) != 0; }
  uint64_t word() {
    uint64_t all = 0;
    for (int i = 0; i < 8; ++i) all = all << 8 | byte();
    return all;
  }
  // Small as a rule; also the ends of what there is, and anything.
  int64_t number() {
    const uint8_t kind = byte();
    if (kind < 200) return static_cast<int64_t>(kind % 9) - 2;
    switch (kind % 8) {
      case 0:
        return INT64_MAX;
      case 1:
        return INT64_MIN;
      case 2:
        return int64_t{1} << (byte() % 63);
      case 3:
        return -(int64_t{1} << (byte() % 63));
      default:
        return static_cast<int64_t>(word());
    }
  }
  std::string_view words(size_t most) {
    const size_t size = std::min<size_t>(byte() % (most + 1), bytes_.size());
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }
  std::string_view rest() {
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    bytes_ = {};
    return taken;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// What became of a call: nothing, or the code of an error that says in words what is wrong, and is no mistake
// of Heddle's.
template <class Call>
std::optional<ErrorCode> refusal_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    must(std::string_view(error.what()).size() > 3, "an error says what is wrong");
    if (error.code() == ErrorCode::internal) std::fprintf(stderr, "ERROR: internal: %s\n", error.what());
    must(error.code() != ErrorCode::internal, "no input makes Heddle say that it is wrong itself");
    return error.code();
  }
  return std::nullopt;
}

// A host device that a claimed size cannot fill, with no helper threads.
inline const Device& small_device() {
  static const Device device = [] {
    DeviceOptions options;
    options.threads = 1;
    Device made = Device::open("host", options);
    constexpr double kBytes = 16 << 20;
    made.set_memory_fraction(kBytes / static_cast<double>(made.stats().memory.recommended_max));
    return made;
  }();
  return device;
}

}  // namespace heddle::fuzz
