// NSObjCRuntime.h: basic types and macros of Foundation.
#pragma once

#include <Block.h>
#include <limits.h>
#include <objc/message.h>
#include <objc/objc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double NSTimeInterval;
typedef double CFTimeInterval;
typedef struct _NSZone NSZone;

#define NSIntegerMax LONG_MAX
#define NSUIntegerMax ULONG_MAX

#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_ENUM(type, name) \
  enum name : type name;    \
  enum name : type
// C++ has no | of two enumerators that yields the enumeration: as on macOS the type is the integer itself.
#define NS_OPTIONS(type, name) \
  type name;                   \
  enum : type
#define NS_STRING_ENUM
#define NS_TYPED_EXTENSIBLE_ENUM
#define NS_REFINED_FOR_SWIFT
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#define NS_RETURNS_INNER_POINTER __attribute__((objc_returns_inner_pointer))
#define NS_FORMAT_FUNCTION(string, first) __attribute__((format(__NSString__, string, first)))
#define NS_DESIGNATED_INITIALIZER __attribute__((objc_designated_initializer))
#define NS_UNAVAILABLE __attribute__((unavailable))
#define NS_NOESCAPE __attribute__((noescape))
#define API_AVAILABLE(...)
#define API_UNAVAILABLE(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)
#define FOUNDATION_EXPORT extern "C"

// GCC's objc.h defines these as integers, which @YES and @NO do not accept, and nil as an id, which is no
// NSError**.
#undef YES
#undef NO
#undef nil
#undef Nil
#define nil nullptr
#define Nil nullptr
#define YES __objc_yes
#define NO __objc_no

@class NSString;

NS_ASSUME_NONNULL_BEGIN
FOUNDATION_EXPORT void NSLog(NSString* format, ...);
FOUNDATION_EXPORT NSString* NSStringFromClass(Class aClass);
FOUNDATION_EXPORT Class _Nullable NSClassFromString(NSString* name);
FOUNDATION_EXPORT NSString* NSStringFromSelector(SEL selector);
FOUNDATION_EXPORT SEL NSSelectorFromString(NSString* name);
NS_ASSUME_NONNULL_END
