// MTLCounters.h: GPU counters. The double has none: its device answers nil for counterSets.
#pragma once

#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSString* const MTLCommonCounterSet NS_TYPED_EXTENSIBLE_ENUM;
MTL_EXTERN MTLCommonCounterSet MTLCommonCounterSetTimestamp;

typedef NS_ENUM(NSUInteger, MTLCounterSamplingPoint) {
  MTLCounterSamplingPointAtStageBoundary,
  MTLCounterSamplingPointAtDrawBoundary,
  MTLCounterSamplingPointAtDispatchBoundary,
  MTLCounterSamplingPointAtTileDispatchBoundary,
  MTLCounterSamplingPointAtBlitBoundary,
};

typedef uint64_t MTLTimestamp;

@protocol MTLCounter <NSObject>
@property(readonly, copy) NSString* name;
@end

@protocol MTLCounterSet <NSObject>
@property(readonly, copy) NSString* name;
@property(readonly, copy) NSArray<id<MTLCounter>>* counters;
@end

NS_ASSUME_NONNULL_END
