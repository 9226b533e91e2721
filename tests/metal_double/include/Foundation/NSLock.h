// NSLock.h: a mutual exclusion lock as an object. Not recursive.
#pragma once

#import <Foundation/NSObject.h>

NS_ASSUME_NONNULL_BEGIN

@protocol NSLocking
- (void)lock;
- (void)unlock;
@end

@interface NSLock : NSObject <NSLocking>
- (BOOL)tryLock;
@end

NS_ASSUME_NONNULL_END
