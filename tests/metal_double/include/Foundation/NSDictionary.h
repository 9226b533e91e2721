// NSDictionary.h: values by key. Keys are copied, values retained.
#pragma once

#import <Foundation/NSArray.h>
#import <Foundation/NSEnumerator.h>
#import <Foundation/NSObject.h>

NS_ASSUME_NONNULL_BEGIN

@interface NSDictionary<__covariant KeyType, __covariant ObjectType>
    : NSObject <NSCopying, NSMutableCopying, NSFastEnumeration>
+ (instancetype)dictionary;
+ (instancetype)dictionaryWithObject:(ObjectType)object forKey:(KeyType<NSCopying>)key;
+ (instancetype)dictionaryWithObjects:(const ObjectType _Nonnull* _Nonnull)objects
                              forKeys:(const KeyType<NSCopying> _Nonnull* _Nonnull)keys
                                count:(NSUInteger)count;
+ (instancetype)dictionaryWithObjects:(NSArray<ObjectType>*)objects
                              forKeys:(NSArray<KeyType<NSCopying>>*)keys;
- (nullable ObjectType)objectForKey:(KeyType)key;
@property(readonly) NSUInteger count;
@property(readonly, copy) NSArray<KeyType>* allKeys;
@property(readonly, copy) NSArray<ObjectType>* allValues;
@end

@interface NSMutableDictionary<KeyType, ObjectType> : NSDictionary <KeyType, ObjectType>
+ (instancetype)dictionaryWithCapacity:(NSUInteger)count;
- (void)setObject:(ObjectType)object forKey:(KeyType<NSCopying>)key;
- (void)removeObjectForKey:(KeyType)key;
- (void)removeAllObjects;
@end

NS_ASSUME_NONNULL_END
