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

// A command buffer itself: what it is asked goes to the one that it wraps at the moment.
@interface MPSCommandBuffer : NSObject <MTLCommandBuffer> {
 @private
  id<MTLCommandBuffer> _commandBuffer, _rootCommandBuffer;
}
@property(readonly, retain, nonatomic) id<MTLCommandBuffer> commandBuffer;  // what it was made with
// What commitAndContinue commits.
@property(readonly, retain, nonatomic) id<MTLCommandBuffer> rootCommandBuffer;
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue;
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer;
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer NS_DESIGNATED_INITIALIZER;
- (instancetype)init NS_UNAVAILABLE;
- (void)commitAndContinue;
@end

@interface MPSMatrixDescriptor : NSObject {
 @private
  NSUInteger _rows, _columns, _rowBytes;
  MPSDataType _dataType;
}
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)rowBytes
                                dataType:(MPSDataType)dataType;
@end

@interface MPSMatrix : NSObject {
 @private
  id<MTLBuffer> _data;
  NSUInteger _offset;
  MPSMatrixDescriptor* _descriptor;
}
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor*)descriptor;
@end

typedef struct {
  uint32_t sourceRowOffset, sourceColumnOffset, destinationRowOffset, destinationColumnOffset;
} MPSMatrixCopyOffsets;

@interface MPSMatrixCopyDescriptor : NSObject {
 @private
  MPSMatrix *_source, *_destination;
}
+ (instancetype)descriptorWithSourceMatrix:(MPSMatrix*)sourceMatrix
                         destinationMatrix:(MPSMatrix*)destinationMatrix
                                   offsets:(MPSMatrixCopyOffsets)offsets;
@end

@interface MPSKernel : NSObject <NSCopying> {
 @private
  id<MTLDevice> _device;
}
@property(readonly, retain, nonatomic) id<MTLDevice> device;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_DESIGNATED_INITIALIZER;
@end

@interface MPSMatrixCopy : MPSKernel {
 @private
  NSUInteger _rows, _columns;
  BOOL _sourcesAreTransposed, _destinationsAreTransposed;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device
                      copyRows:(NSUInteger)copyRows
                   copyColumns:(NSUInteger)copyColumns
          sourcesAreTransposed:(BOOL)sourcesAreTransposed
     destinationsAreTransposed:(BOOL)destinationsAreTransposed NS_DESIGNATED_INITIALIZER;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               copyDescriptor:(MPSMatrixCopyDescriptor*)copyDescriptor;
@end

NS_ASSUME_NONNULL_END
