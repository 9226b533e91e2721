// no_memory.h: an allocation that failed inside a standard container becomes a Status.
//
//   What       or_exhausted(what, f) returns f()'s Status or Result. std::bad_alloc and std::length_error
//              that leave f become exhausted; other exceptions pass.
//   Use        Where a caller's sizes may first lead to an allocation that no limit covers: loading,
//              compiling, a reference's working memory. For public calls src/api wraps it
//              (within_memory() in api/internals.h).
//   Threads    Pure.
#pragma once

#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace heddle {

// Where even the words for it find no memory, it says so without them.
template <class... Why>
Status exhausted_by(std::string_view what, const Why&... why) {
  try {
    return Status::exhausted(what, why...);
  } catch (const std::bad_alloc&) {
    return Status::no_memory();
  }
}

template <class F>
auto or_exhausted(std::string_view what, F&& f) -> decltype(f()) {
  try {
    return std::forward<F>(f)();
  } catch (const std::bad_alloc&) {
    return exhausted_by(what, ": the system has no memory left");
  } catch (const std::length_error& error) {
    return exhausted_by(what, ": a size is beyond what a container can hold (", error.what(), ")");
  }
}

}  // namespace heddle
