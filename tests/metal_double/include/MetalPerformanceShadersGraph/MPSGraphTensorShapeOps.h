// MPSGraphTensorShapeOps.h: the same elements in another shape or order.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MPSGraphPaddingMode) {
  MPSGraphPaddingModeConstant = 0L,
  MPSGraphPaddingModeReflect = 1L,
  MPSGraphPaddingModeSymmetric = 2L,
  MPSGraphPaddingModeClampToEdge = 3L,
  MPSGraphPaddingModeZero = 4L,
  MPSGraphPaddingModePeriodic = 5L,
  MPSGraphPaddingModeAntiPeriodic = 6L,
};

@interface MPSGraph (MPSGraphTensorShapeOps)
- (MPSGraphTensor*)reshapeTensor:(MPSGraphTensor*)tensor
                       withShape:(MPSShape*)shape
                            name:(NSString* _Nullable)name;
- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString* _Nullable)name;
- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                        starts:(NSArray<NSNumber*>*)starts
                          ends:(NSArray<NSNumber*>*)ends
                       strides:(NSArray<NSNumber*>*)strides
                          name:(NSString* _Nullable)name;
- (MPSGraphTensor*)concatTensors:(NSArray<MPSGraphTensor*>*)tensors
                       dimension:(NSInteger)dimensionIndex
                            name:(NSString* _Nullable)name;
- (MPSGraphTensor*)tileTensor:(MPSGraphTensor*)tensor
               withMultiplier:(MPSShape*)multiplier
                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)padTensor:(MPSGraphTensor*)tensor
             withPaddingMode:(MPSGraphPaddingMode)paddingMode
                 leftPadding:(MPSShape*)leftPadding
                rightPadding:(MPSShape*)rightPadding
               constantValue:(double)constantValue
                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)broadcastTensor:(MPSGraphTensor*)tensor
                           toShape:(MPSShape*)shape
                              name:(NSString* _Nullable)name;
- (MPSGraphTensor*)castTensor:(MPSGraphTensor*)tensor toType:(MPSDataType)type name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reinterpretCastTensor:(MPSGraphTensor*)tensor
                                  toType:(MPSDataType)type
                                    name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reverseTensor:(MPSGraphTensor*)tensor
                            axes:(NSArray<NSNumber*>*)axes
                            name:(NSString* _Nullable)name;
- (MPSGraphTensor*)coordinateAlongAxis:(NSInteger)axis
                             withShape:(MPSShape*)shape
                                  name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
