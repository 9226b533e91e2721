// number.mm: NSNumber.
#import <Foundation/NSValue.h>

#import <Foundation/NSString.h>

#include <type_traits>

@interface HeddleNumber : NSNumber {
 @public
  double _real;
  unsigned long long _bits;  // of the integer, two's complement
  bool _is_real;
}
@end
@implementation HeddleNumber
@end

namespace {

template <class T>
NSNumber* number(T value) {
  HeddleNumber* const made = [HeddleNumber alloc];
  made->_real = static_cast<double>(value);
  made->_bits = static_cast<unsigned long long>(static_cast<long long>(value));
  made->_is_real = std::is_floating_point_v<T>;
  return [made autorelease];
}
template <>
NSNumber* number(unsigned long long value) {
  HeddleNumber* const made = [HeddleNumber alloc];
  made->_real = static_cast<double>(value);
  made->_bits = value;
  return [made autorelease];
}

const HeddleNumber* of(NSNumber* number) { return static_cast<const HeddleNumber*>(number); }

}  // namespace

@implementation NSNumber

+ (NSNumber*)numberWithChar:(char)value {
  return number(static_cast<int>(value));
}
+ (NSNumber*)numberWithInt:(int)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedInt:(unsigned int)value {
  return number(value);
}
+ (NSNumber*)numberWithLong:(long)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedLong:(unsigned long)value {
  return number(static_cast<unsigned long long>(value));
}
+ (NSNumber*)numberWithLongLong:(long long)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedLongLong:(unsigned long long)value {
  return number(value);
}
+ (NSNumber*)numberWithFloat:(float)value {
  return number(value);
}
+ (NSNumber*)numberWithDouble:(double)value {
  return number(value);
}
+ (NSNumber*)numberWithBool:(BOOL)value {
  return number(value ? 1 : 0);
}
+ (NSNumber*)numberWithInteger:(NSInteger)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedInteger:(NSUInteger)value {
  return number(static_cast<unsigned long long>(value));
}

- (int)intValue {
  return static_cast<int>(of(self)->_bits);
}
- (unsigned int)unsignedIntValue {
  return static_cast<unsigned int>(of(self)->_bits);
}
- (long long)longLongValue {
  return static_cast<long long>(of(self)->_bits);
}
- (unsigned long long)unsignedLongLongValue {
  return of(self)->_bits;
}
- (float)floatValue {
  return static_cast<float>(of(self)->_real);
}
- (double)doubleValue {
  return of(self)->_real;
}
- (BOOL)boolValue {
  return of(self)->_real != 0;
}
- (NSInteger)integerValue {
  return static_cast<NSInteger>(of(self)->_bits);
}
- (NSUInteger)unsignedIntegerValue {
  return of(self)->_bits;
}

- (BOOL)isEqualToNumber:(NSNumber*)other {
  return of(self)->_real == of(other)->_real && of(self)->_bits == of(other)->_bits;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSNumber class]] && [self isEqualToNumber:object];
}
- (NSUInteger)hash {
  return of(self)->_bits;
}
- (NSString*)description {
  return of(self)->_is_real ? [NSString stringWithFormat:@"%g", of(self)->_real]
                            : [NSString stringWithFormat:@"%lld", [self longLongValue]];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}

@end
