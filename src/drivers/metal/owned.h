// owned.h: the one place where retain counts are handled: an Objective-C object that is held.
//
//   What       Owned<T> holds one reference to a T, which is id<Protocol> or Class*. adopt() takes over the
//              reference that alloc, new and copy give; retain() adds one to an object that others own.
//   Threads    As std::shared_ptr: copies may be used and dropped by any threads, one object by one writer.
//   Lifetime   The object lives as long as an Owned holds it. For .mm files; manual reference counting.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace heddle::metal {

template <class T>
class Owned {
 public:
  Owned() = default;
  static Owned adopt(T object) { return Owned(object); }
  static Owned retain(T object) { return Owned([object retain]); }

  Owned(const Owned& other) : object_([other.object_ retain]) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { [object_ release]; }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  explicit Owned(T object) : object_(object) {}
  T object_ = nil;
};

}  // namespace heddle::metal
