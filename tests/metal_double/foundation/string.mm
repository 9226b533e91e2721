// string.mm: NSString and the class of its constants.
#import "string.h"

#include <objc/runtime.h>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>

@interface HeddleString : NSString {
 @public
  std::string _text;
}
@end
@implementation HeddleString
- (const char*)UTF8String {
  return _text.c_str();
}
- (NSUInteger)length {
  return _text.size();
}
@end

namespace heddle::foundation {

NSString* new_string(std::string text) {
  HeddleString* const made = [HeddleString alloc];
  made->_text = std::move(text);
  return made;
}

NSString* string(std::string text) { return [new_string(std::move(text)) autorelease]; }

namespace {

template <class T>
std::string printed(const std::string& conversion, T value) {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
  const int size = snprintf(nullptr, 0, conversion.c_str(), value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  snprintf(text.data(), text.size(), conversion.c_str(), value);
#pragma clang diagnostic pop
  text.pop_back();
  return text;
}

std::string described(id object) { return object ? [[object description] UTF8String] : "(null)"; }

// One conversion, `%` and flags included, its argument taken from `arguments`.
std::string converted(const std::string& conversion, va_list* arguments) {
  const bool wide = conversion.find_first_of("lzqtj") != std::string::npos;
  switch (conversion.back()) {
    case '%':
      return "%";
    case '@':
      return described(va_arg(*arguments, id));
    case 's':
      return printed(conversion, va_arg(*arguments, const char*));
    case 'p':
      return printed(conversion, va_arg(*arguments, void*));
    case 'f':
    case 'g':
    case 'e':
      return printed(conversion, va_arg(*arguments, double));
    default:
      return wide ? printed(conversion, va_arg(*arguments, long))
                  : printed(conversion, va_arg(*arguments, int));
  }
}

}  // namespace

std::string format(NSString* pattern, va_list arguments) {
  va_list left;
  va_copy(left, arguments);
  std::string text;
  for (const char* at = [pattern UTF8String]; *at; ++at) {
    if (*at != '%') {
      text += *at;
      continue;
    }
    std::string conversion = "%";
    do conversion += *++at;
    while (*at && strchr("0123456789.-+ #lhzqtj", *at));
    text += converted(conversion, &left);
  }
  va_end(left);
  return text;
}

}  // namespace heddle::foundation

using heddle::foundation::format;
using heddle::foundation::new_string;
using heddle::foundation::string;

@implementation NSString

+ (instancetype)string {
  return @"";
}
+ (instancetype)stringWithUTF8String:(const char*)characters {
  return string(characters);
}
+ (instancetype)stringWithCString:(const char*)characters encoding:(NSStringEncoding)encoding {
  (void)encoding;
  return string(characters);
}
+ (instancetype)stringWithString:(NSString*)other {
  return string([other UTF8String]);
}
+ (instancetype)stringWithFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format(pattern, arguments);
  va_end(arguments);
  return string(std::move(text));
}
- (instancetype)initWithFormat:(NSString*)pattern, ... {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format(pattern, arguments);
  va_end(arguments);
  [self release];
  return new_string(std::move(text));
}
- (instancetype)initWithUTF8String:(const char*)characters {
  [self release];
  return new_string(characters);
}
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding {
  (void)encoding;
  [self release];
  return new_string(std::string(static_cast<const char*>(bytes), length));
}
- (const char*)UTF8String {
  return "";
}
- (NSUInteger)length {
  return strlen([self UTF8String]);
}
- (NSUInteger)lengthOfBytesUsingEncoding:(NSStringEncoding)encoding {
  (void)encoding;
  return [self length];
}
- (BOOL)isEqualToString:(NSString*)other {
  return other && strcmp([self UTF8String], [other UTF8String]) == 0;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}
- (NSUInteger)hash {
  return std::hash<std::string_view>()([self UTF8String]);
}
- (BOOL)hasPrefix:(NSString*)other {
  return std::string_view([self UTF8String]).starts_with([other UTF8String]);
}
- (BOOL)hasSuffix:(NSString*)other {
  return std::string_view([self UTF8String]).ends_with([other UTF8String]);
}
- (BOOL)containsString:(NSString*)other {
  return strstr([self UTF8String], [other UTF8String]) != nullptr;
}
- (NSString*)stringByAppendingString:(NSString*)other {
  return string(std::string([self UTF8String]) + [other UTF8String]);
}
- (NSString*)description {
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}

@end

@implementation NSConstantString
- (const char*)UTF8String {
  return _characters;
}
- (NSUInteger)length {
  return _length;
}
- (instancetype)retain {
  return self;
}
- (oneway void)release {
}
- (instancetype)autorelease {
  return self;
}
@end

void NSLog(NSString* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  const std::string text = format(pattern, arguments);
  va_end(arguments);
  fprintf(stderr, "%s\n", text.c_str());
}
NSString* NSStringFromClass(Class aClass) { return string(class_getName(aClass)); }
Class NSClassFromString(NSString* name) { return static_cast<Class>(objc_lookUpClass([name UTF8String])); }
NSString* NSStringFromSelector(SEL selector) { return string(sel_getName(selector)); }
SEL NSSelectorFromString(NSString* name) { return sel_registerName([name UTF8String]); }
