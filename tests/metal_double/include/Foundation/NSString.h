// NSString.h: immutable UTF-8 strings and @"constants".
#pragma once

#import <Foundation/NSObject.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSUInteger NSStringEncoding;
enum : NSStringEncoding { NSASCIIStringEncoding = 1, NSUTF8StringEncoding = 4 };

@interface NSString : NSObject <NSCopying>
+ (instancetype)string;
+ (nullable instancetype)stringWithUTF8String:(const char*)characters;
+ (nullable instancetype)stringWithCString:(const char*)characters encoding:(NSStringEncoding)encoding;
+ (instancetype)stringWithString:(NSString*)string;
+ (instancetype)stringWithFormat:(NSString*)format, ... NS_FORMAT_FUNCTION(1, 2);
- (nullable instancetype)initWithUTF8String:(const char*)characters;
- (instancetype)initWithFormat:(NSString*)format, ... NS_FORMAT_FUNCTION(1, 2);
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding;
- (BOOL)isEqualToString:(NSString*)other;
- (BOOL)hasPrefix:(NSString*)other;
- (BOOL)hasSuffix:(NSString*)other;
- (BOOL)containsString:(NSString*)other;
- (NSString*)stringByAppendingString:(NSString*)other;
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding;
@property(readonly) NSUInteger length;
@property(nullable, readonly) const char* UTF8String NS_RETURNS_INNER_POINTER;
@end

// The class of @"constants": clang emits objects of this layout. Never freed.
@interface NSConstantString : NSString {
  const char* _characters;
  unsigned _length;
}
@end

NS_ASSUME_NONNULL_END
