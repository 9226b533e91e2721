// What ThreadSanitizer sees of Objective-C: true races must be reported, correct programs must not.
#import <Foundation/Foundation.h>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/metal_double/dying_fixture.h"

namespace {
int g_table[64];
}

@interface Initialized : NSObject
+ (int)get:(int)index;
@end
@implementation Initialized
+ (void)initialize {
  for (int i = 0; i < 64; ++i) g_table[i] = i;
}
+ (int)get:(int)index {
  return g_table[index];
}
@end

@interface Cell : NSObject {
 @public
  int _value;
  NSObject* _object;
  NSObject* _shared;
}
@property(nonatomic) int value;
@property(nonatomic, retain) NSObject* object;
@property(atomic, retain) NSObject* shared;
@end
@implementation Cell
@synthesize value = _value;
@synthesize object = _object;
@synthesize shared = _shared;
- (void)dealloc {
  _value = -1;
  [_object release];
  [_shared release];
  [super dealloc];
}
@end

namespace {

template <class F>
void twice(F work) {
  std::thread one(work), other(work);
  one.join();
  other.join();
}

void reads_a_table_of_initialize() {
  twice([] {
    for (int i = 0; i < 64; ++i) {
      if ([Initialized get:i] != i) abort();
    }
  });
}
void shares_a_block() {
  for (int round = 0; round < 100; ++round) {
    const std::string text(100, 'x');
    void (^const block)(void) = Block_copy(^{
      if (text.size() != 100) abort();
    });
    Block_copy(block);
    twice([=] {
      block();
      Block_release(block);
    });
  }
}
void shares_an_object() {
  for (int round = 0; round < 100; ++round) {
    Cell* const cell = [[Cell new] retain];
    twice([=] {
      if (cell.value != 0) abort();
      [cell release];
    });
  }
}
void uses_an_atomic_property() {
  @autoreleasepool {
    Cell* const cell = [[Cell new] autorelease];
    std::thread writer([=] {
      for (int i = 0; i < 200; ++i) {
        Cell* const made = [Cell new];
        made->_value = 1;
        cell.shared = made;
        [made release];
      }
    });
    std::thread reader([=] {
      for (int i = 0; i < 200; ++i) {
        @autoreleasepool {
          Cell* const seen = static_cast<Cell*>(cell.shared);
          if (seen && seen->_value != 1) abort();
        }
      }
    });
    writer.join();
    reader.join();
  }
}
void uses_synchronized() {
  NSObject* const lock = [NSObject new];
  int sum = 0;
  twice([&] {
    for (int i = 0; i < 500; ++i) {
      @synchronized(lock) {
        ++sum;
      }
    }
  });
  if (sum != 1000) abort();
  [lock release];
}
void shares_an_array() {
  for (int round = 0; round < 50; ++round) {
    NSArray* array = nil;
    @autoreleasepool {
      array = [[NSArray arrayWithObjects:@(70000 + round), @"text", nil] retain];
    }
    [array retain];
    twice([=] {
      @autoreleasepool {
        if ([[array objectAtIndex:0] intValue] < 70000) abort();
        [array release];
      }
    });
  }
}

struct Program {
  const char* name;
  void (*run)();
};
constexpr Program kCorrect[] = {
    {"+initialize's table", reads_a_table_of_initialize},
    {"a block's last release", shares_a_block},
    {"an object's last release", shares_an_object},
    {"an atomic property", uses_an_atomic_property},
    {"@synchronized", uses_synchronized},
    {"an array's last release", shares_an_array},
};

}  // namespace

TEST_CASE("correct programs run without a report") {
  for (const Program& program : kCorrect) {
    INFO(std::string(program.name));
    program.run();
  }
}

#if __has_feature(thread_sanitizer)
namespace {
using heddle::metal_double::Misuse;

volatile bool g_seen;  // keeps reads from being optimised away

template <class Write, class Read>
void race(Write write, Read read) {
  Cell* const cell = [Cell new];
  std::atomic<bool> read_done{false};
  std::thread writer([&] {
    while (!read_done.load(std::memory_order_relaxed)) std::this_thread::yield();
    write(cell);
  });
  g_seen = read(cell);
  read_done.store(true, std::memory_order_relaxed);
  writer.join();
}
void on_an_ivar() {
  race([](Cell* cell) { cell->_value = 3; }, [](Cell* cell) { return cell->_value == 9; });
}
void on_a_scalar_property() {
  race([](Cell* cell) { cell.value = 3; }, [](Cell* cell) { return cell.value == 9; });
}
void on_an_object_property() {
  NSObject* const object = [NSObject new];
  race([=](Cell* cell) { cell.object = object; }, [=](Cell* cell) { return cell.object == object; });
}
void use_against_last_release() {
  race([](Cell* cell) { [cell release]; }, [](Cell* cell) { return cell.value == 9; });
}

constexpr Misuse kRaces[] = {
    {"an ivar", on_an_ivar, "WARNING: ThreadSanitizer: data race"},
    {"a scalar property", on_a_scalar_property, "WARNING: ThreadSanitizer: data race"},
    {"an object property", on_an_object_property, "objc_setProperty"},
    {"a use and the last release", use_against_last_release, "_i_NSObject__release"},
};
}  // namespace

TEST_CASE("a child runs its race" * doctest::skip()) { heddle::metal_double::run_misuse_of_child(kRaces); }

TEST_CASE("true races are reported, with the methods' names") {
  for (const Misuse& row : kRaces) {
    const heddle::test::Child death = heddle::test::run_child(
        "a child runs its race", {std::string(heddle::metal_double::kMisuseVariable) + "=" + row.name});
    CHECK_MESSAGE(death.said.find("ThreadSanitizer: data race") != std::string::npos, std::string(row.name)
                                                                                          << death.said);
    CHECK_MESSAGE(death.said.find(row.words) != std::string::npos, std::string(row.name) << death.said);
  }
}
#endif
