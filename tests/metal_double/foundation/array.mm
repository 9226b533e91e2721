// array.mm: NSArray and NSMutableArray, one class behind both.
#import <Foundation/NSArray.h>

#import <Foundation/NSException.h>

#include <objc/runtime.h>
#include <vector>

@interface HeddleArray : NSMutableArray {
 @public
  std::vector<id> _items;
  unsigned long _mutations;
}
@end

namespace {

HeddleArray* of(NSArray* array) { return static_cast<HeddleArray*>(array); }

template <class Items>
HeddleArray* new_array(const Items& items) {
  HeddleArray* const made = [HeddleArray alloc];
  for (const id item : items) made->_items.push_back([item retain]);
  return made;
}

struct Items {
  const id* first;
  NSUInteger count;
  const id* begin() const { return first; }
  const id* end() const { return first + count; }
};

void require_index(NSArray* array, NSUInteger index, NSUInteger limit) {
  if (index >= limit) {
    [NSException raise:NSRangeException
                format:@"-[%s objectAtIndex:]: index %lu beyond bounds [0 .. %lu)",
                       object_getClassName(array), index, limit];
  }
}

}  // namespace

@implementation NSArray

+ (instancetype)alloc {
  const bool ours = self == [NSArray class] || self == [NSMutableArray class];
  return ours ? static_cast<id>([HeddleArray alloc]) : static_cast<id>([super alloc]);
}
+ (instancetype)array {
  return [[HeddleArray new] autorelease];
}
+ (instancetype)arrayWithObject:(id)object {
  return [new_array(Items{&object, 1}) autorelease];
}
+ (instancetype)arrayWithObjects:(const id*)objects count:(NSUInteger)count {
  return [new_array(Items{objects, count}) autorelease];
}
+ (instancetype)arrayWithObjects:(id)first, ... {
  std::vector<id> items;
  va_list more;
  va_start(more, first);
  for (id item = first; item; item = va_arg(more, id)) items.push_back(item);
  va_end(more);
  return [new_array(items) autorelease];
}
+ (instancetype)arrayWithArray:(NSArray*)other {
  return [new_array(of(other)->_items) autorelease];
}

- (NSUInteger)count {
  return of(self)->_items.size();
}
- (id)objectAtIndex:(NSUInteger)index {
  require_index(self, index, of(self)->_items.size());
  return of(self)->_items[index];
}
- (NSUInteger)indexOfObject:(id)object {
  const std::vector<id>& items = of(self)->_items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i] == object || [items[i] isEqual:object]) return i;
  }
  return NSNotFound;
}
- (BOOL)containsObject:(id)object {
  return [self indexOfObject:object] != NSNotFound;
}
- (BOOL)isEqualToArray:(NSArray*)other {
  if ([self count] != [other count]) return NO;
  for (NSUInteger i = 0; i < [self count]; ++i) {
    if (![[self objectAtIndex:i] isEqual:[other objectAtIndex:i]]) return NO;
  }
  return YES;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSArray class]] && [self isEqualToArray:object];
}
- (NSUInteger)hash {
  return [self count];
}
- (id)firstObject {
  return of(self)->_items.empty() ? nil : of(self)->_items.front();
}
- (id)lastObject {
  return of(self)->_items.empty() ? nil : of(self)->_items.back();
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return new_array(of(self)->_items);
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  (void)zone;
  return new_array(of(self)->_items);
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id*)buffer
                                    count:(NSUInteger)count {
  (void)buffer;
  (void)count;
  if (state->state) return 0;
  state->state = 1;
  state->itemsPtr = of(self)->_items.data();
  state->mutationsPtr = &of(self)->_mutations;
  return of(self)->_items.size();
}

@end

@implementation NSMutableArray

+ (instancetype)arrayWithCapacity:(NSUInteger)count {
  HeddleArray* const made = [HeddleArray new];
  made->_items.reserve(count);
  return [made autorelease];
}
- (void)addObject:(id)object {
  of(self)->_items.push_back([object retain]);
  ++of(self)->_mutations;
}
- (void)insertObject:(id)object atIndex:(NSUInteger)index {
  std::vector<id>& items = of(self)->_items;
  require_index(self, index, items.size() + 1);
  items.insert(items.begin() + static_cast<ptrdiff_t>(index), [object retain]);
  ++of(self)->_mutations;
}
- (void)replaceObjectAtIndex:(NSUInteger)index withObject:(id)object {
  std::vector<id>& items = of(self)->_items;
  require_index(self, index, items.size());
  [object retain];
  [items[index] release];
  items[index] = object;
}
- (void)removeObjectAtIndex:(NSUInteger)index {
  std::vector<id>& items = of(self)->_items;
  require_index(self, index, items.size());
  [items[index] release];
  items.erase(items.begin() + static_cast<ptrdiff_t>(index));
  ++of(self)->_mutations;
}
- (void)removeLastObject {
  [self removeObjectAtIndex:[self count] - 1];
}
- (void)removeAllObjects {
  for (const id item : of(self)->_items) [item release];
  of(self)->_items.clear();
  ++of(self)->_mutations;
}

@end

@implementation HeddleArray
- (void)dealloc {
  for (const id item : _items) [item release];
  [super dealloc];
}
@end
