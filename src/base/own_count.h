// own_count.h: references to one object that are counted apart.
//
//   What       own_count(ref) is one more reference to ref's object, with a count of its own on a cache line
//              that holds nothing else. Threads that copy and drop references to one object, but each from
//              its own such Ref, write no line in common.
//   Invariant  The object lives as long as a copy of either.
//   Threads    As any Ref.
#pragma once

#include <utility>

#include "base/status.h"

namespace heddle {

// A Ref's count lies beside its deleter, whose alignment both get.
template <class T>
struct alignas(64) Keeps {
  Ref<T> kept;
  void operator()(const T*) { kept.reset(); }
};

template <class T>
Ref<T> own_count(Ref<T> ref) {
  T* const object = ref.get();
  return Ref<T>(object, Keeps<T>{std::move(ref)});
}

}  // namespace heddle
