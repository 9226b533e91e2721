// Exceptions of both languages in one file, each past the other's handlers.
#import <Foundation/Foundation.h>

#include <doctest/doctest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#define NOINLINE __attribute__((noinline))

namespace {

int g_alive = 0;
struct Guard {
  Guard() { ++g_alive; }
  ~Guard() { --g_alive; }
};
struct Derived : std::runtime_error {
  using std::runtime_error::runtime_error;
};

NOINLINE void throw_cpp() {
  const Guard guard;
  throw Derived("c");
}
NOINLINE void throw_objc() {
  const Guard guard;
  @autoreleasepool {
    [NSException raise:NSRangeException format:@"i %d", 3];
  }
}

NOINLINE bool cpp_by_its_base() {
  try {
    throw_cpp();
  } catch (const std::runtime_error& error) {
    return std::string_view(error.what()) == "c";
  }
  return false;
}
NOINLINE bool objc_by_type() {
  @try {
    throw_objc();
  } @catch (NSException* exception) {
    return [exception.reason isEqual:@"i 3"];
  }
  return false;
}
NOINLINE bool objc_by_the_right_type_of_two() {
  @try {
    throw_objc();
  } @catch (NSString*) {
    return false;
  } @catch (NSObject*) {
    return true;
  }
  return false;
}
NOINLINE bool cpp_passes_a_typed_catch_of_objc() {
  try {
    @try {
      throw_cpp();
    } @catch (NSException*) {
      return false;
    }
  } catch (const Derived&) {
    return true;
  }
  return false;
}
NOINLINE bool objc_passes_a_typed_catch_of_cpp() {
  @try {
    try {
      throw_objc();
    } catch (const std::exception&) {
      return false;
    }
  } @catch (NSException*) {
    return true;
  }
  return false;
}
NOINLINE bool objc_into_catch_all() {
  try {
    throw_objc();
  } catch (...) {
    return true;
  }
  return false;
}
NOINLINE bool cpp_past_two_objc_types_into_catch_all() {
  try {
    @try {
      throw_cpp();
    } @catch (NSString*) {
      return false;
    } @catch (NSException*) {
      return false;
    }
  } catch (...) {
    return true;
  }
  return false;
}
NOINLINE bool exception_ptr_rethrown() {
  std::exception_ptr kept;
  try {
    throw_cpp();
  } catch (...) {
    kept = std::current_exception();
  }
  try {
    @try {
      std::rethrow_exception(kept);
    } @catch (NSException*) {
      return false;
    }
  } catch (const std::exception& error) {
    return std::string_view(error.what()) == "c";
  }
  return false;
}
NOINLINE bool pointers_thrown() {
  int four = 4;
  try {
    @try {
      throw &four;
    } @catch (NSException*) {
      return false;
    }
  } catch (const int* caught) {
    return *caught == 4;
  }
  return false;
}
NOINLINE bool synchronized_is_left() {
  NSObject* const lock = [[NSObject new] autorelease];
  try {
    @synchronized(lock) {
      throw_cpp();
    }
  } catch (const Derived&) {
    bool free = false;
    std::thread([&] {
      @synchronized(lock) {
        free = true;
      }
    }).join();
    return free;
  }
  return false;
}
NOINLINE bool objc_rethrown() {
  @try {
    @try {
      throw_objc();
    } @catch (NSException*) {
      @throw;
    }
  } @catch (NSException* again) {
    return [again.name isEqual:NSRangeException];
  }
  return false;
}

int g_finally = 0;
NOINLINE void objc_with_finally() {
  @try {
    throw_objc();
  } @finally {
    ++g_finally;
  }
}
NOINLINE void cpp_with_finally() {
  @try {
    throw_cpp();
  } @finally {
    ++g_finally;
  }
}
NOINLINE bool finally_runs_and_lets_pass() {
  g_finally = 0;
  int caught = 0;
  @try {
    objc_with_finally();
  } @catch (NSException*) {
    ++caught;
  }
  try {
    cpp_with_finally();
  } catch (const Derived&) {
    ++caught;
  } @
  try {
  } @finally {
    ++g_finally;
  }
  return caught == 2 && g_finally == 3;
}
NOINLINE bool through_blocks_and_frames() {
  void (^const block)(void) = ^{
    throw_cpp();
  };
  try {
    block();
  } catch (const Derived&) {
    return true;
  }
  return false;
}
NOINLINE bool collections_raise() {
  @try {
    [@[ @1 ] objectAtIndex:1];
  } @catch (NSException* exception) {
    return [exception.name isEqualToString:NSRangeException] && [exception.reason hasPrefix:@"-[HeddleArray"];
  }
  return false;
}

struct Case {
  const char* name;
  bool (*works)();
};
constexpr Case kCases[] = {
    {"C++ by its base", cpp_by_its_base},
    {"Objective-C by type", objc_by_type},
    {"Objective-C by the right type of two", objc_by_the_right_type_of_two},
    {"C++ passes a typed @catch", cpp_passes_a_typed_catch_of_objc},
    {"Objective-C passes a typed catch", objc_passes_a_typed_catch_of_cpp},
    {"Objective-C into catch (...)", objc_into_catch_all},
    {"C++ past two @catch into catch (...)", cpp_past_two_objc_types_into_catch_all},
    {"std::exception_ptr", exception_ptr_rethrown},
    {"a thrown pointer", pointers_thrown},
    {"@synchronized is left", synchronized_is_left},
    {"@throw; again", objc_rethrown},
    {"@finally runs and lets pass", finally_runs_and_lets_pass},
    {"out of a block", through_blocks_and_frames},
    {"an index out of range", collections_raise},
};

}  // namespace

TEST_CASE("exceptions of C++ and Objective-C meet in one file, and every frame is cleaned up") {
  for (const Case& one : kCases) {
    @autoreleasepool {
      CHECK_MESSAGE(one.works(), std::string(one.name));
      CHECK_MESSAGE(g_alive == 0, std::string(one.name));
    }
  }
}
