// exception_tables.h: reading the tables that a compiler leaves for each function about its exceptions (the
// "language-specific data area" of the Itanium C++ ABI).
#pragma once

#include <unwind.h>

#include <cstddef>
#include <cstdint>

namespace heddle::foundation {

// One entry of a landing pad's action chain. filter: 0 cleanup, positive a catch clause, negative a
// specification.
struct Action {
  int64_t filter = 0;
  const uint8_t* next = nullptr;  // null at the end of the chain
};

class ExceptionTables {
 public:
  explicit ExceptionTables(_Unwind_Context* context);

  bool present() const { return type_base_ != nullptr || call_sites_ != nullptr; }
  // The landing pad of the call that is being unwound, 0 if it has none, and the first entry of its actions.
  uintptr_t landing_pad() const { return landing_pad_; }
  const uint8_t* first_action() const { return first_action_; }
  const uint8_t* begin() const { return begin_; }

  static Action action_at(const uint8_t* at);
  // What a positive filter names: a std::type_info, the name of an Objective-C class, or 0 for "anything".
  uintptr_t type(int64_t filter) const;

 private:
  void find_call_site(_Unwind_Context* context, const uint8_t* end, uint8_t encoding, uintptr_t pads);

  const uint8_t* begin_;
  const uint8_t* type_base_ = nullptr;
  const uint8_t* call_sites_ = nullptr;
  uint8_t type_encoding_ = 0xff;
  uintptr_t landing_pad_ = 0;
  const uint8_t* first_action_ = nullptr;
};

}  // namespace heddle::foundation
