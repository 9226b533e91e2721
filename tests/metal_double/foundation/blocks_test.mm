// Blocks that outlive their frame, run on other threads and are objects.
#import <Foundation/Foundation.h>

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

namespace {
int g_freed = 0;
}

@interface Owner : NSObject {
  void (^_handler)(int);
}
@property(nonatomic, copy) void (^handler)(int);
@end
@implementation Owner
@synthesize handler = _handler;
- (void)dealloc {
  ++g_freed;
  [_handler release];
  [super dealloc];
}
@end

TEST_CASE("a copied block keeps captured objects and C++ values, and shares __block variables") {
  @autoreleasepool {
    g_freed = 0;
    __block int sum = 0;
    Owner* const captured = [Owner new];
    Owner* const owner = [Owner new];
    const std::string text(100, 'x');
    owner.handler = ^(int value) {
      [captured self];
      sum += value + static_cast<int>(text.size());
    };
    [captured release];
    CHECK(g_freed == 0);
    std::thread([&] { owner.handler(4); }).join();
    owner.handler(4);
    CHECK(sum == 208);
    [owner release];
    CHECK(g_freed == 2);
  }
}

TEST_CASE("a __block object is not retained by the block") {
  @autoreleasepool {
    g_freed = 0;
    __block Owner* loose = [Owner new];
    void (^const block)(void) = Block_copy(^{
      [loose release];
      loose = nil;
    });
    block();
    CHECK(g_freed == 1);
    CHECK(loose == nil);
    Block_release(block);
    CHECK(g_freed == 1);
  }
}

TEST_CASE("blocks are objects: in arrays, copied by message, of a class") {
  @autoreleasepool {
    __block int calls = 0;
    NSMutableArray* const array = [NSMutableArray array];
    [array addObject:[[^{
             ++calls;
           } copy] autorelease]];
    void (^const block)(void) = [array objectAtIndex:0];
    block();
    [array removeAllObjects];
    CHECK(calls == 1);
    const id global = static_cast<id>(^{
    });
    CHECK([global isKindOfClass:NSClassFromString(@"NSBlock")]);
    CHECK([global retain] == global);
  }
}

TEST_CASE("a block inside a block keeps the inner one's captures") {
  @autoreleasepool {
    g_freed = 0;
    Owner* const captured = [Owner new];
    void (^const outer)(void) = Block_copy(^{
      void (^const inner)(void) = Block_copy(^{
        [captured self];
      });
      inner();
      Block_release(inner);
    });
    [captured release];
    outer();
    CHECK(g_freed == 0);
    Block_release(outer);
    CHECK(g_freed == 1);
  }
}
