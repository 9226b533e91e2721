// settings_kept.h: an encoder's state as it was set, so that a late call can be encoded elsewhere with the
// same state.
//
//   Keeps     the last setting of each selector and index, with its objects retained and its bytes copied.
//   Cost      a short search and, for another object than before, a retain and a release.
//   Threads   belongs to the holder of the encoder's lock.
#pragma once

#include "originals.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

namespace agx_guard {

struct KeptSetting {
  static constexpr size_t kArguments = 64, kObjects = 2;
  using Apply = void (*)(const KeptSetting&, id encoder, SEL, IMP);

  uint64_t key;
  const Selector* call;
  Apply apply;
  std::array<id, kObjects> objects;
  std::vector<std::byte> bytes;  // behind a pointer argument
  alignas(16) std::byte arguments[kArguments];
};

class KeptSettings {
 public:
  KeptSettings() = default;
  KeptSettings(const KeptSettings&) = delete;
  KeptSettings& operator=(const KeptSettings&) = delete;
  ~KeptSettings() { clear(); }

  template <class... A>
  void keep(const Selector& call, A... arguments);

  // A setting came that cannot be kept; late calls need it, so they cannot be carried over any more.
  void lose() { lost_ = true; }
  bool lost() const { return lost_; }

  // Settings since the last work: someone is in the middle of encoding.
  bool unfinished() const { return unfinished_; }
  void worked() { unfinished_ = false; }

  bool empty() const { return used_ == 0; }
  void clear();

  template <class Each>
  void each(Each&& apply) const {
    for (size_t i = 0; i < used_; ++i) apply(kept_[i]);
  }

 private:
  KeptSetting& slot(uint64_t key);
  void drop(uint64_t key);

  std::vector<KeptSetting> kept_;  // the first used_ count; the rest keep their memory
  size_t used_ = 0;
  bool lost_ = false, unfinished_ = false;
};

namespace kept_details {

template <class... A>
void apply(const KeptSetting& setting, id encoder, SEL selector, IMP implementation) {
  std::tuple<A...> arguments;
  memcpy(&arguments, setting.arguments, sizeof arguments);
  std::apply(
      [&](A... each) {
        const auto behind = [&](auto value) {
          if constexpr (std::is_same_v<decltype(value), const void*>) {
            return value ? static_cast<const void*>(setting.bytes.data()) : value;
          } else {
            return value;
          }
        };
        reinterpret_cast<void (*)(id, SEL, A...)>(implementation)(encoder, selector, behind(each)...);
      },
      arguments);
}

template <class... A>
constexpr bool begins_with_bytes = false;
template <class... Rest>
constexpr bool begins_with_bytes<const void*, NSUInteger, Rest...> = true;

template <class First, class Second, class... Rest>
void copy_bytes(std::vector<std::byte>& bytes, First first, Second second, Rest...) {
  if constexpr (std::is_same_v<First, const void*> && std::is_same_v<Second, NSUInteger>) {
    const auto* from = static_cast<const std::byte*>(first);
    if (from) bytes.assign(from, from + second);
  }
}

template <class First, class... Rest>
const void* first_object(First first, Rest...) {
  if constexpr (std::is_same_v<First, id>) return (const void*)first;
  return nullptr;
}

template <class Last>
uint64_t last_number(Last last) {
  if constexpr (std::is_integral_v<Last>) return last;
  return 0;
}
template <class First, class Second, class... Rest>
uint64_t last_number(First, Second second, Rest... rest) {
  return last_number(second, rest...);
}

}  // namespace kept_details

template <class... A>
void KeptSettings::keep(const Selector& call, A... arguments) {
  unfinished_ = true;
  constexpr size_t pointers = (size_t(std::is_same_v<A, const void*>) + ... + 0);
  constexpr size_t objects = (size_t(std::is_same_v<A, id>) + ... + 0);
  // What can be copied is (bytes, length, ...); how far any other pointer leads is not known.
  constexpr bool fits = sizeof...(A) > 0 && sizeof(std::tuple<A...>) <= KeptSetting::kArguments &&
                        objects <= KeptSetting::kObjects &&
                        (pointers == 0 || (pointers == 1 && kept_details::begins_with_bytes<A...>));
  if constexpr (!fits) {
    lose();
  } else {
    if (!call.carries) return lose();
    using namespace kept_details;
    uint64_t key = call.group ? call.group : reinterpret_cast<uintptr_t>(&call);
    key = call.indexed ? key * 1024 + last_number(arguments...) + 1 : key * 1024;
    // Of -useResource: every resource counts, not only the last.
    if (call.name.compare(0, 3, "use") == 0) key += reinterpret_cast<uintptr_t>(first_object(arguments...));
    if (call.group == 1) drop(key + 1024);  // an offset of the buffer before this one
    KeptSetting& setting = slot(key);
    std::array<id, KeptSetting::kObjects> given{};
    size_t count = 0;
    const auto note = [&](auto value) {
      if constexpr (std::is_same_v<decltype(value), id>) given[count++] = value;
    };
    (note(arguments), ...);
    for (size_t i = 0; i < given.size(); ++i) {
      if (setting.objects[i] == given[i]) continue;
      [setting.objects[i] release];
      setting.objects[i] = [given[i] retain];
    }
    setting.call = &call;
    setting.apply = apply<A...>;
    if constexpr (sizeof...(A) > 1) copy_bytes(setting.bytes, arguments...);
    const std::tuple<A...> all(arguments...);
    memcpy(setting.arguments, &all, sizeof all);
  }
}

}  // namespace agx_guard
