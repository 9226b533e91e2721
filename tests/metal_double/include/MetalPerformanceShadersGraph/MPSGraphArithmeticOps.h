// MPSGraphArithmeticOps.h: one result element from one element of each operand.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphArithmeticOps)
- (MPSGraphTensor*)identityWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)exponentWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)logarithmWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)squareWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)squareRootWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reciprocalWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)absoluteWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)negativeWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)signWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)ceilWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)floorWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)rintWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)sinWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)cosWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)tanWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)sinhWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)coshWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)asinWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)acosWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)atanWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)asinhWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)acoshWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)atanhWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)tanhWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)erfWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)notWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)isInfiniteWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)isNaNWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseNOTWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)additionWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                             secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)subtractionWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                           name:(NSString* _Nullable)name;
- (MPSGraphTensor*)multiplicationWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                   secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                              name:(NSString* _Nullable)name;
- (MPSGraphTensor*)divisionWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                             secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)moduloWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                           secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                      name:(NSString* _Nullable)name;
- (MPSGraphTensor*)powerWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                          secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)minimumWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                            secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                       name:(NSString* _Nullable)name;
- (MPSGraphTensor*)maximumWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                            secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                       name:(NSString* _Nullable)name;
- (MPSGraphTensor*)minimumWithNaNPropagationWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                              secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)maximumWithNaNPropagationWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                              secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)equalWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                          secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)notEqualWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                             secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)lessThanWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                             secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)lessThanOrEqualToWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                      secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                 name:(NSString* _Nullable)name;
- (MPSGraphTensor*)greaterThanWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                           name:(NSString* _Nullable)name;
- (MPSGraphTensor*)greaterThanOrEqualToWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                         secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                    name:(NSString* _Nullable)name;
- (MPSGraphTensor*)logicalANDWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                               secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                          name:(NSString* _Nullable)name;
- (MPSGraphTensor*)logicalORWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                              secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)logicalXORWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                               secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                          name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseANDWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                               secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                          name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseORWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                              secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseXORWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                               secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                          name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseLeftShiftWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                     secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                name:(NSString* _Nullable)name;
- (MPSGraphTensor*)bitwiseRightShiftWithPrimaryTensor:(MPSGraphTensor*)primaryTensor
                                      secondaryTensor:(MPSGraphTensor*)secondaryTensor
                                                 name:(NSString* _Nullable)name;
- (MPSGraphTensor*)selectWithPredicateTensor:(MPSGraphTensor*)predicateTensor
                         truePredicateTensor:(MPSGraphTensor*)truePredicateTensor
                        falsePredicateTensor:(MPSGraphTensor*)falseSelectTensor
                                        name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
