// MetalPerformanceShaders.h: what MPSGraph takes from Metal Performance Shaders: types, shapes, its buffer.
// command buffer.
//
//   What       Names and values of Apple's header, as far as the driver uses them; on macOS Apple's is found
//              instead.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSArray<NSNumber*> MPSShape;

enum : uint32_t {
  MPSDataTypeFloatBit = 0x10000000,
  MPSDataTypeSignedBit = 0x20000000,
  MPSDataTypeAlternateEncodingBit = 0x80000000,
};
typedef NS_ENUM(uint32_t, MPSDataType) {
  MPSDataTypeInvalid = 0,
  MPSDataTypeFloat32 = MPSDataTypeFloatBit | 32,
  MPSDataTypeFloat16 = MPSDataTypeFloatBit | 16,
  MPSDataTypeBFloat16 = MPSDataTypeAlternateEncodingBit | MPSDataTypeFloat16,
  MPSDataTypeInt8 = MPSDataTypeSignedBit | 8,
  MPSDataTypeInt16 = MPSDataTypeSignedBit | 16,
  MPSDataTypeInt32 = MPSDataTypeSignedBit | 32,
  MPSDataTypeInt64 = MPSDataTypeSignedBit | 64,
  MPSDataTypeUInt8 = 8,
  MPSDataTypeUInt16 = 16,
  MPSDataTypeUInt32 = 32,
  MPSDataTypeUInt64 = 64,
  MPSDataTypeBool = MPSDataTypeAlternateEncodingBit | 8,
};

// Apple's conforms to MTLCommandBuffer as well; the driver asks it for nothing but what it wraps.
@interface MPSCommandBuffer : NSObject {
 @private
  id<MTLCommandBuffer> _commandBuffer;
}
@property(readonly, nonatomic) id<MTLCommandBuffer> commandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
@end

NS_ASSUME_NONNULL_END
