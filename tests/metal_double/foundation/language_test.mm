// Objective-C++ as clang and our run time offer it: each row of the table is one feature that the driver may
// use.
#import <Foundation/Foundation.h>

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <vector>

namespace {
int g_alive = 0;
struct Counted {
  Counted() { ++g_alive; }
  Counted(const Counted&) { ++g_alive; }
  ~Counted() { --g_alive; }
};
}  // namespace

@protocol Shape <NSObject>
- (double)area;
@optional
- (void)spin;
@end

typedef struct {
  double a, b, c;
} Triple;

@interface Square : NSObject <Shape, NSCopying> {
  double _side;
  NSString* _name;
  NSString* _copied;
  NSString* _shared;
  Triple _triple;
}
@property(nonatomic) double side;
@property(nonatomic, retain) NSString* name;
@property(nonatomic, copy) NSString* copied;
@property(atomic, retain) NSString* shared;
@property(nonatomic) Triple triple;
@property(class, readonly) int corners;
@end
@implementation Square
@synthesize side = _side;
@synthesize name = _name;
@synthesize copied = _copied;
@synthesize shared = _shared;
@synthesize triple = _triple;
+ (int)corners {
  return 4;
}
- (double)area {
  return _side * _side;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}
- (void)dealloc {
  [_name release];
  [_copied release];
  [_shared release];
  [super dealloc];
}
@end

@interface NSString (Shout)
- (NSString*)shout;
@end
@implementation NSString (Shout)
- (NSString*)shout {
  return [self stringByAppendingString:@"!"];
}
@end

@interface Loaded : NSObject
@end
static int g_loaded, g_initialized;
@implementation Loaded
+ (void)load {
  ++g_loaded;
}
+ (void)initialize {
  ++g_initialized;
}
@end

@interface WithMembers : NSObject {
 @public
  Counted _member;
  std::vector<int> _numbers;
}
@end
@implementation WithMembers
@end
@interface WithMoreMembers : WithMembers {
 @public
  Counted _another;
}
@end
@implementation WithMoreMembers
@end

namespace {

bool protocols() {
  Square* const s = [[Square new] autorelease];
  s.side = 3;
  const id<Shape> shape = s;
  return [shape area] == 9 && ![shape respondsToSelector:@selector(spin)] &&
         [s conformsToProtocol:@protocol(Shape)] && ![s conformsToProtocol:@protocol(NSFastEnumeration)];
}
bool class_members() { return Square.corners == 4; }
bool categories() { return [[@"go" shout] isEqualToString:@"go!"]; }
bool load_and_initialize() {
  [Loaded class];
  [Loaded class];
  return g_loaded == 1 && g_initialized == 1;
}
bool generics() {
  NSArray<NSNumber*>* const numbers = @[ @1, @2 ];
  __kindof NSObject* const any = [numbers firstObject];
  NSNumber* const number = any;
  return [number intValue] == 1;
}
bool bridges() {
  NSString* const text = @"text";
  const void* const raw = (__bridge const void*)text;
  return [(__bridge NSString*)raw isEqualToString:@"text"];
}
bool properties() {
  Square* const s = [[Square new] autorelease];
  NSString* const text = [[NSString alloc] initWithUTF8String:"text"];
  s.name = text;
  s.copied = text;
  s.shared = text;
  s.triple = {1, 2, 3};
  const bool held = [text retainCount] == 4;
  [text release];
  return held && [s.name isEqualToString:@"text"] && [s.shared isEqualToString:@"text"] && s.triple.c == 3;
}
bool literals() {
  NSDictionary* const d = @{@"one" : @1, @"half" : @0.5, @"yes" : @YES, @"list" : @[ @7 ]};
  return [[d objectForKey:@"one"] intValue] == 1 && [[d objectForKey:@"half"] doubleValue] == 0.5 &&
         [[d objectForKey:@"yes"] boolValue] && [[[d objectForKey:@"list"] firstObject] intValue] == 7;
}
bool fast_enumeration() {
  int sum = 0;
  for (NSNumber* number in @[ @1, @2, @3 ]) sum += [number intValue];
  NSString* keys = @"";
  for (NSString* key in @{@"a" : @1, @"b" : @2}) keys = [keys stringByAppendingString:key];
  return sum == 6 && [keys isEqualToString:@"ab"];
}
bool synchronized_statement() {
  NSObject* const lock = [[NSObject new] autorelease];
  int taken = 0;
  @synchronized(lock) {
    ++taken;
  }
  return taken == 1;
}
bool nil_answers_zero() {
  Square* const nobody = nil;
  const Triple triple = [nobody triple];
  return [nobody side] == 0 && triple.a == 0 && triple.c == 0 && [nobody name] == nil;
}
bool cpp_members() {
  const int before = g_alive;
  WithMoreMembers* const object = [WithMoreMembers new];
  object->_numbers.push_back(7);
  const bool alive = g_alive == before + 2 && object->_numbers.back() == 7;
  [object release];
  return alive && g_alive == before;
}
template <class F>
auto apply(F f, std::span<const int> numbers) {
  int sum = 0;
  for (const int n : numbers) sum += f(n);
  return sum;
}
bool cpp20() {
  const std::vector<int> numbers = {1, 2, 3};
  NSNumber* const factor = @2;
  return apply([&](int n) { return n * [factor intValue]; }, numbers) == 12;
}
bool pools() {
  const int before = g_alive;
  bool inside = false;
  @autoreleasepool {
    [[WithMembers new] autorelease];
    inside = g_alive == before + 1;
  }
  return inside && g_alive == before;
}
bool nested_pools_after_an_exception() {
  const int before = g_alive;
  try {
    @autoreleasepool {
      [[WithMembers new] autorelease];
      throw 1;
    }
  } catch (int) {
  } @
  autoreleasepool { [[WithMembers new] autorelease]; }
  return g_alive <= before + 1;  // the pool that was jumped over drains with the one below it
}
bool formats() {
  NSString* const text = [NSString stringWithFormat:@"%@ %d %lu %.2f %s%%", @"a", -1, 2ul, 0.5, "z"];
  return [text isEqualToString:@"a -1 2 0.50 z%"];
}
bool number_equality() {
  return [@1 isEqual:@1] && ![@1 isEqual:@2] && [@(1ull << 63) unsignedLongLongValue] == 1ull << 63;
}
bool dictionaries_copy_keys() {
  NSMutableDictionary* const d = [NSMutableDictionary dictionary];
  Square* const key = [[Square new] autorelease];
  [d setObject:@1 forKey:key];
  [d setObject:@2 forKey:key];
  const bool replaced = [d count] == 1 && [[d objectForKey:key] intValue] == 2;
  [d removeObjectForKey:key];
  return replaced && [d count] == 0 && [d objectForKey:key] == nil;
}

struct Feature {
  const char* name;
  bool (*works)();
};
constexpr Feature kFeatures[] = {
    {"protocols, optional methods", protocols},
    {"class methods and properties", class_members},
    {"categories", categories},
    {"+load and +initialize run once", load_and_initialize},
    {"generics and __kindof", generics},
    {"__bridge", bridges},
    {"synthesized properties: retain, copy, atomic, struct", properties},
    {"literals", literals},
    {"fast enumeration", fast_enumeration},
    {"@synchronized", synchronized_statement},
    {"messages to nil answer zero", nil_answers_zero},
    {"C++ members are constructed and destroyed, base first", cpp_members},
    {"templates, lambdas, span", cpp20},
    {"@autoreleasepool", pools},
    {"pools that an exception jumped over", nested_pools_after_an_exception},
    {"stringWithFormat", formats},
    {"numbers", number_equality},
    {"dictionaries", dictionaries_copy_keys},
};

}  // namespace

TEST_CASE("every feature of Objective-C++ that the driver may use works on our run time") {
  for (const Feature& feature : kFeatures) {
    @autoreleasepool {
      CHECK_MESSAGE(feature.works(), std::string(feature.name));
    }
  }
}
