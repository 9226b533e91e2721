// status.h: how a call says that it failed, and why.
//
//   What       Status is ok, or {code, message, place}. Result<T> is a T, or a Status that is not ok.
//   Invariant  An ok Status is a null pointer: returning one costs nothing. A failure is immutable and shared
//              by its copies. A Result never holds an ok Status without a value.
//   Threads    Copies of one failure may be read and dropped by any threads. One object: one writer, as
//              usual.
//   Blocks     Never. Making a failure allocates, but for no_memory(); everything else does not.
//   Lifetime   message() is valid as long as this Status or a copy of it. value() of a failed Result ends the
//              process with the failure in the message: look at ok(), or use the two macros, first.
//
//   Status check(int64_t rank) {
//     if (rank < 0) return Status::invalid("rank is ", rank, "; it must be 0 or more");
//     return {};
//   }
//   Result<Graph> read(std::string_view bytes) {
//     HEDDLE_TRY(check_size(bytes.size()));
//     HEDDLE_TRY_ASSIGN(auto proto, parse(bytes));
//     return lower(proto);
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/atomic.h"

namespace heddle {

template <class T>
using Ref = std::shared_ptr<T>;

enum class Code : uint8_t {
  ok,
  invalid,      // the caller's argument or file is wrong: repeating the call gives the same answer
  unsupported,  // well formed, but Heddle does not do it
  exhausted,    // memory, streams or queue room are used up: later may succeed
  unavailable,  // closed, shutting down, or its worker is gone
  deadline,     // the caller's time is over
  cancelled,    // the caller asked to stop
  device_lost,  // the stream or device has failed for good
  internal,     // a fault of Heddle's own
};
std::string_view name(Code);
std::string to_string(Code);

// One piece of a message. char is a character, other integers are numbers; a null C string reads "(null)".
void append_part(std::string& out, std::string_view part);
void append_part(std::string& out, const char* part);
void append_part(std::string& out, char part);
void append_part(std::string& out, bool part);
void append_part(std::string& out, int64_t part);
void append_part(std::string& out, uint64_t part);
void append_part(std::string& out, float part);
void append_part(std::string& out, double part);

template <class T>
void append_any(std::string& out, const T& part) {
  using Plain = std::remove_cvref_t<std::decay_t<T>>;
  if constexpr (std::is_same_v<Plain, char*> || std::is_same_v<Plain, const char*>) {
    append_part(out, static_cast<const char*>(part));
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    append_part(out, std::string_view(part));
  } else if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, char> ||
                       std::is_same_v<Plain, float>) {
    append_part(out, part);
  } else if constexpr (std::is_floating_point_v<Plain>) {
    append_part(out, static_cast<double>(part));
  } else if constexpr (std::is_integral_v<Plain> && std::is_signed_v<Plain>) {
    append_part(out, static_cast<int64_t>(part));
  } else if constexpr (std::is_integral_v<Plain>) {
    append_part(out, static_cast<uint64_t>(part));
  } else {
    append_part(out, std::string_view(to_string(part)));  // found by argument-dependent lookup
  }
}

// Joins strings, characters, bools, numbers and anything with a to_string(const T&) beside its type.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_any(out, parts), ...);
  return out;
}

// The first piece of a failure's message. Made implicitly at the call, so it knows where the call stands.
struct Where {
  template <class S>
    requires std::convertible_to<const S&, std::string_view>
  Where(const S& first, std::source_location at = std::source_location::current())  // NOLINT: implicit
      : message(first), place(at) {}
  std::string_view message;
  std::source_location place;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(const Status& other) : rep_(other.rep_) { retain(); }
  Status(Status&& other) noexcept : rep_(std::exchange(other.rep_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(rep_, other.rep_);
    return *this;
  }
  ~Status() {
    if (rep_ != nullptr) release();
  }

  static Status make(Code code, std::string message,
                     std::source_location place = std::source_location::current());

#define HEDDLE_STATUS_MAKER(code)                                       \
  template <class... Parts>                                             \
  static Status code(Where first, const Parts&... rest) {               \
    return make(Code::code, text(first.message, rest...), first.place); \
  }
  HEDDLE_STATUS_MAKER(invalid)
  HEDDLE_STATUS_MAKER(unsupported)
  HEDDLE_STATUS_MAKER(exhausted)
  HEDDLE_STATUS_MAKER(unavailable)
  HEDDLE_STATUS_MAKER(deadline)
  HEDDLE_STATUS_MAKER(cancelled)
  HEDDLE_STATUS_MAKER(device_lost)
  HEDDLE_STATUS_MAKER(internal)
#undef HEDDLE_STATUS_MAKER

  // exhausted: what says so where there is no memory for words.
  static Status no_memory();

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ == nullptr ? Code::ok : rep_->code; }
  const std::string& message() const;                  // empty when ok
  std::string place() const;                           // "file.cpp:12", empty when ok
  Status with_context(std::string_view prefix) const;  // "prefix: message", same code and place

 private:
  struct Rep {
    Rep(Code c, std::string m, std::source_location p) : code(c), message(std::move(m)), place(p) {}
    const Code code;
    const std::string message;
    const std::source_location place;
    Atomic<uint32_t> owners{1};  // the last owner deletes; the others' reads come before that
  };
  explicit Status(const Rep* rep) : rep_(rep) {}
  static const Rep& without_memory;  // made before main(), and never given up
  void retain() const;
  void release();

  const Rep* rep_ = nullptr;
};
std::string to_string(const Status&);  // "invalid: message", or "ok"

[[noreturn]] void die_without_value(const Status&);

template <class T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<T, Status>, "return a Status, not a Result<Status>");

 public:
  template <class U = T>
    requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
             !std::is_same_v<std::remove_cvref_t<U>, Status>)
  Result(U&& value) : value_(std::forward<U>(value)) {}   // NOLINT: implicit, so that `return value;` works
  Result(Status failure) : status_(std::move(failure)) {  // NOLINT: implicit, so that `return status;` works
    if (status_.ok()) status_ = Status::internal("a Result was made from an ok Status; it needs a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *checked(); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return *checked(); }
  const T& operator*() const& { return *checked(); }
  T&& operator*() && { return std::move(*checked()); }
  T* operator->() { return checked(); }
  const T* operator->() const { return checked(); }

 private:
  T* checked() {
    if (!value_.has_value()) [[unlikely]]
      die_without_value(status_);
    return &*value_;
  }
  const T* checked() const { return const_cast<Result*>(this)->checked(); }

  std::optional<T> value_;
  Status status_;
};

inline Status status_of(Status status) { return status; }
template <class T>
Status status_of(const Result<T>& result) {
  return result.status();
}

}  // namespace heddle

#define HEDDLE_JOIN_(a, b) a##b
#define HEDDLE_JOIN(a, b) HEDDLE_JOIN_(a, b)

// Leaves the function with the failure of a Status or Result; goes on when there is none.
#define HEDDLE_TRY(...) HEDDLE_TRY_(HEDDLE_JOIN(heddle_try_, __COUNTER__), (__VA_ARGS__))
#define HEDDLE_TRY_(kept, expr)                                                     \
  do {                                                                              \
    if (::heddle::Status kept = ::heddle::status_of(expr); !kept.ok()) [[unlikely]] \
      return kept;                                                                  \
  } while (false)

// HEDDLE_TRY_ASSIGN(auto x, f()): x becomes the value of the Result, or the function returns its failure.
#define HEDDLE_TRY_ASSIGN(target, ...) \
  HEDDLE_TRY_ASSIGN_(target, HEDDLE_JOIN(heddle_try_, __COUNTER__), (__VA_ARGS__))
#define HEDDLE_TRY_ASSIGN_(target, kept, expr) \
  auto kept = expr;                            \
  if (!kept.ok()) [[unlikely]]                 \
    return ::heddle::Status(kept.status());    \
  target = std::move(kept).value()
