// NSObject.h: the root class and the protocols that everything else adopts.
//
//   Invariant  NSObject has no ivar but isa, since clang lays out string constants as {isa, characters,
//              length}. The reference count lies in a header before the object.
#pragma once

#import <Foundation/NSObjCRuntime.h>

NS_ASSUME_NONNULL_BEGIN

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (NSUInteger)retainCount;
- (Class)class;
- (instancetype)self;
- (BOOL)isEqual:(nullable id)object;
- (BOOL)isKindOfClass:(Class)aClass;
- (BOOL)conformsToProtocol:(Protocol*)protocol;
- (BOOL)respondsToSelector:(SEL)selector;
- (id)performSelector:(SEL)selector;
@property(readonly) NSUInteger hash;
@property(readonly, copy) NSString* description;
@end

@protocol NSCopying
- (id)copyWithZone:(nullable NSZone*)zone;
@end

@protocol NSMutableCopying
- (id)mutableCopyWithZone:(nullable NSZone*)zone;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
  Class isa;
}
+ (instancetype)alloc;
+ (instancetype)allocWithZone:(nullable struct _NSZone*)zone;
+ (instancetype)new;
+ (Class)class;
+ (nullable Class)superclass;
+ (BOOL)conformsToProtocol:(Protocol*)protocol;
+ (BOOL)instancesRespondToSelector:(SEL)selector;
- (instancetype)init NS_DESIGNATED_INITIALIZER;
- (void)dealloc;
- (id)copy;
- (id)mutableCopy;
- (IMP)methodForSelector:(SEL)selector;
- (void)doesNotRecognizeSelector:(SEL)selector;
@end

NS_ASSUME_NONNULL_END
