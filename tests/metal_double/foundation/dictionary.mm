// dictionary.mm: NSDictionary and NSMutableDictionary, one class behind both. Small ones: keys are searched
// one by one, in the order in which they were set.
#import <Foundation/NSDictionary.h>

#import <Foundation/NSException.h>

#include <vector>

@interface HeddleDictionary : NSMutableDictionary {
 @public
  std::vector<id> _keys;
  std::vector<id> _values;
  unsigned long _mutations;
}
@end

namespace {

HeddleDictionary* of(NSDictionary* dictionary) { return static_cast<HeddleDictionary*>(dictionary); }

// The key's place, or the number of keys.
size_t find(NSDictionary* dictionary, id key) {
  const std::vector<id>& keys = of(dictionary)->_keys;
  size_t i = 0;
  while (i < keys.size() && keys[i] != key && ![keys[i] isEqual:key]) ++i;
  return i;
}

HeddleDictionary* new_copy(NSDictionary* dictionary) {
  HeddleDictionary* const made = [HeddleDictionary new];
  for (size_t i = 0; i < of(dictionary)->_keys.size(); ++i) {
    [made setObject:of(dictionary)->_values[i] forKey:of(dictionary)->_keys[i]];
  }
  return made;
}

}  // namespace

@implementation NSDictionary

+ (instancetype)alloc {
  const bool ours = self == [NSDictionary class] || self == [NSMutableDictionary class];
  return ours ? static_cast<id>([HeddleDictionary alloc]) : static_cast<id>([super alloc]);
}
+ (instancetype)dictionary {
  return [[HeddleDictionary new] autorelease];
}
+ (instancetype)dictionaryWithObject:(id)object forKey:(id<NSCopying>)key {
  return [self dictionaryWithObjects:&object forKeys:&key count:1];
}
+ (instancetype)dictionaryWithObjects:(const id*)objects
                              forKeys:(const id<NSCopying>*)keys
                                count:(NSUInteger)count {
  const id made = [self dictionary];
  for (NSUInteger i = 0; i < count; ++i) [made setObject:objects[i] forKey:keys[i]];
  return made;
}
+ (instancetype)dictionaryWithObjects:(NSArray*)objects forKeys:(NSArray*)keys {
  if ([objects count] != [keys count]) {
    [NSException
         raise:NSInvalidArgumentException
        format:@"count of objects (%lu) differs from count of keys (%lu)", [objects count], [keys count]];
  }
  const id made = [self dictionary];
  for (NSUInteger i = 0; i < [keys count]; ++i) {
    [made setObject:[objects objectAtIndex:i] forKey:[keys objectAtIndex:i]];
  }
  return made;
}

- (NSUInteger)count {
  return of(self)->_keys.size();
}
- (id)objectForKey:(id)key {
  const size_t at = find(self, key);
  return at < of(self)->_keys.size() ? of(self)->_values[at] : nil;
}
- (NSArray*)allKeys {
  return [NSArray arrayWithObjects:of(self)->_keys.data() count:of(self)->_keys.size()];
}
- (NSArray*)allValues {
  return [NSArray arrayWithObjects:of(self)->_values.data() count:of(self)->_values.size()];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return new_copy(self);
}
- (id)mutableCopyWithZone:(NSZone*)zone {
  (void)zone;
  return new_copy(self);
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id*)buffer
                                    count:(NSUInteger)count {
  (void)buffer;
  (void)count;
  if (state->state) return 0;
  state->state = 1;
  state->itemsPtr = of(self)->_keys.data();
  state->mutationsPtr = &of(self)->_mutations;
  return of(self)->_keys.size();
}

@end

@implementation NSMutableDictionary

+ (instancetype)dictionaryWithCapacity:(NSUInteger)count {
  (void)count;
  return [self dictionary];
}
- (void)setObject:(id)object forKey:(id<NSCopying>)key {
  if (!object || !key) {
    [NSException raise:NSInvalidArgumentException format:@"-[NSMutableDictionary setObject:forKey:]: nil"];
  }
  const size_t at = find(self, key);
  [object retain];
  if (at < of(self)->_keys.size()) {
    [of(self)->_values[at] release];
    of(self)->_values[at] = object;
    return;
  }
  of(self)->_keys.push_back([key copyWithZone:nullptr]);
  of(self)->_values.push_back(object);
  ++of(self)->_mutations;
}
- (void)removeObjectForKey:(id)key {
  const size_t at = find(self, key);
  if (at == of(self)->_keys.size()) return;
  [of(self)->_keys[at] release];
  [of(self)->_values[at] release];
  of(self)->_keys.erase(of(self)->_keys.begin() + static_cast<ptrdiff_t>(at));
  of(self)->_values.erase(of(self)->_values.begin() + static_cast<ptrdiff_t>(at));
  ++of(self)->_mutations;
}
- (void)removeAllObjects {
  for (const id key : of(self)->_keys) [key release];
  for (const id value : of(self)->_values) [value release];
  of(self)->_keys.clear();
  of(self)->_values.clear();
  ++of(self)->_mutations;
}

@end

@implementation HeddleDictionary
- (void)dealloc {
  for (const id key : _keys) [key release];
  for (const id value : _values) [value release];
  [super dealloc];
}
@end
