// dispatch.h: the part of libdispatch that a Metal driver uses.
//
//   What      Serial queues, queue-specific values, semaphores, groups, once and time.
//   Threads   dispatch_sync runs on the caller's thread, in first-come order, as libdispatch does;
//             dispatch_async on a worker thread that the queue starts at its first use. Each item has its
//             own autorelease pool.
//   Blocks    dispatch_sync, dispatch_semaphore_wait and dispatch_group_wait. dispatch_sync onto the queue
//             that the caller is on aborts, with libdispatch's words.
//   Lifetime  The create functions return an owned object: dispatch_release (or -release) ends it. A queue
//             lives until its last item has run.
#pragma once

#import <Foundation/Foundation.h>

@protocol OS_dispatch_object <NSObject>
@end
@protocol OS_dispatch_queue <OS_dispatch_object>
@end
@protocol OS_dispatch_queue_attr <OS_dispatch_object>
@end
@protocol OS_dispatch_semaphore <OS_dispatch_object>
@end
@protocol OS_dispatch_group <OS_dispatch_object>
@end
@protocol OS_dispatch_data <OS_dispatch_object>
@end

typedef NSObject<OS_dispatch_object>* dispatch_object_t;
typedef NSObject<OS_dispatch_queue>* dispatch_queue_t;
typedef NSObject<OS_dispatch_queue_attr>* dispatch_queue_attr_t;
typedef NSObject<OS_dispatch_semaphore>* dispatch_semaphore_t;
typedef NSObject<OS_dispatch_group>* dispatch_group_t;
typedef NSObject<OS_dispatch_data>* dispatch_data_t;
typedef void (^dispatch_block_t)(void);
typedef void (*dispatch_function_t)(void* _Nullable context);
typedef uint64_t dispatch_time_t;
typedef intptr_t dispatch_once_t;

#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t) nullptr)
#define DISPATCH_TIME_NOW 0ull
#define DISPATCH_TIME_FOREVER (~0ull)
#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_USEC 1000ull

NS_ASSUME_NONNULL_BEGIN

FOUNDATION_EXPORT dispatch_queue_t dispatch_queue_create(const char* _Nullable label,
                                                         dispatch_queue_attr_t _Nullable attributes);
FOUNDATION_EXPORT const char* dispatch_queue_get_label(dispatch_queue_t queue);
FOUNDATION_EXPORT void dispatch_queue_set_specific(dispatch_queue_t queue, const void* key,
                                                   void* _Nullable value,
                                                   dispatch_function_t _Nullable destructor);
FOUNDATION_EXPORT void* _Nullable dispatch_get_specific(const void* key);
FOUNDATION_EXPORT void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
FOUNDATION_EXPORT void dispatch_sync(dispatch_queue_t queue, NS_NOESCAPE dispatch_block_t block);
FOUNDATION_EXPORT void dispatch_async_f(dispatch_queue_t queue, void* _Nullable context,
                                        dispatch_function_t function);
FOUNDATION_EXPORT void dispatch_sync_f(dispatch_queue_t queue, void* _Nullable context,
                                       dispatch_function_t function);

FOUNDATION_EXPORT void dispatch_retain(dispatch_object_t object);
FOUNDATION_EXPORT void dispatch_release(dispatch_object_t object);

FOUNDATION_EXPORT dispatch_semaphore_t dispatch_semaphore_create(intptr_t value);
FOUNDATION_EXPORT intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout);
FOUNDATION_EXPORT intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore);

FOUNDATION_EXPORT dispatch_group_t dispatch_group_create(void);
FOUNDATION_EXPORT void dispatch_group_enter(dispatch_group_t group);
FOUNDATION_EXPORT void dispatch_group_leave(dispatch_group_t group);
FOUNDATION_EXPORT intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout);

FOUNDATION_EXPORT dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds);
FOUNDATION_EXPORT void dispatch_once(dispatch_once_t* predicate, NS_NOESCAPE dispatch_block_t block);

NS_ASSUME_NONNULL_END
