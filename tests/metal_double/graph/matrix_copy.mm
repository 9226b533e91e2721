// Copies of matrices, as MPS has them: the strided copies that Fault::kStridedCopy... is about.
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <cstring>

#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/metal/command_buffer.h"

@interface MPSMatrixDescriptor (HeddleDouble)
- (NSUInteger)rows;
- (NSUInteger)rowBytes;
- (MPSDataType)dataType;
@end
@interface MPSMatrix (HeddleDouble)
- (MPSMatrixDescriptor*)descriptor;
- (id<MTLBuffer>)data;
- (NSUInteger)offset;
@end
@interface MPSMatrixCopyDescriptor (HeddleDouble)
- (MPSMatrix*)source;
- (MPSMatrix*)destination;
@end

@implementation MPSMatrixDescriptor
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)rowBytes
                                dataType:(MPSDataType)dataType {
  MPSMatrixDescriptor* const made = [[self new] autorelease];
  made->_rows = rows;
  made->_columns = columns;
  made->_rowBytes = rowBytes;
  made->_dataType = dataType;
  return made;
}
- (NSUInteger)rows {
  return _rows;
}
- (NSUInteger)rowBytes {
  return _rowBytes;
}
- (MPSDataType)dataType {
  return _dataType;
}
@end

@implementation MPSMatrix
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor*)descriptor {
  if ((self = [super init])) {
    if ([buffer length] < offset + [descriptor rows] * [descriptor rowBytes])
      heddle::metal_double::refuse("MPSMatrix initWithBuffer:offset:descriptor:", "the buffer is too small");
    _data = [buffer retain];
    _offset = offset;
    _descriptor = [descriptor retain];
  }
  return self;
}
- (MPSMatrixDescriptor*)descriptor {
  return _descriptor;
}
- (id<MTLBuffer>)data {
  return _data;
}
- (NSUInteger)offset {
  return _offset;
}
- (void)dealloc {
  [_data release];
  [_descriptor release];
  [super dealloc];
}
@end

@implementation MPSMatrixCopyDescriptor
+ (instancetype)descriptorWithSourceMatrix:(MPSMatrix*)sourceMatrix
                         destinationMatrix:(MPSMatrix*)destinationMatrix
                                   offsets:(MPSMatrixCopyOffsets)offsets {
  if (offsets.sourceRowOffset || offsets.sourceColumnOffset || offsets.destinationRowOffset ||
      offsets.destinationColumnOffset)
    heddle::metal_double::refuse("descriptorWithSourceMatrix:", "offsets are not in the double yet");
  MPSMatrixCopyDescriptor* const made = [[self new] autorelease];
  made->_source = [sourceMatrix retain];
  made->_destination = [destinationMatrix retain];
  return made;
}
- (MPSMatrix*)source {
  return _source;
}
- (MPSMatrix*)destination {
  return _destination;
}
- (void)dealloc {
  [_source release];
  [_destination release];
  [super dealloc];
}
@end

namespace heddle::metal_double {
namespace {

// Where the elements of a matrix lie, in bytes.
struct Layout {
  size_t start, row, column;
  size_t at(size_t r, size_t c) const { return start + r * row + c * column; }
};

Layout layout(MPSMatrix* matrix, BOOL transposed) {
  const size_t each = static_cast<size_t>(size_of(known([[matrix descriptor] dataType], "MPSMatrixCopy")));
  const size_t pitch = [[matrix descriptor] rowBytes];
  return {[matrix offset], transposed ? each : pitch, transposed ? pitch : each};
}

}  // namespace
}  // namespace heddle::metal_double

@interface MPSKernel ()
- (instancetype)init NS_UNAVAILABLE;
@end

@implementation MPSKernel
@synthesize device = _device;
- (instancetype)initWithDevice:(id<MTLDevice>)device {
  if ((self = [super init])) _device = [device retain];
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];
}
- (void)dealloc {
  [_device release];
  [super dealloc];
}
@end

@implementation MPSMatrixCopy
- (instancetype)initWithDevice:(id<MTLDevice>)device
                      copyRows:(NSUInteger)copyRows
                   copyColumns:(NSUInteger)copyColumns
          sourcesAreTransposed:(BOOL)sourcesAreTransposed
     destinationsAreTransposed:(BOOL)destinationsAreTransposed {
  if ((self = [super initWithDevice:device])) {
    _rows = copyRows;
    _columns = copyColumns;
    _sourcesAreTransposed = sourcesAreTransposed;
    _destinationsAreTransposed = destinationsAreTransposed;
  }
  return self;
}
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
               copyDescriptor:(MPSMatrixCopyDescriptor*)copyDescriptor {
  using namespace heddle::metal_double;
  MPSMatrix *const source = [copyDescriptor source], *const target = [copyDescriptor destination];
  const Layout from = layout(source, _sourcesAreTransposed), to = layout(target, _destinationsAreTransposed);
  const auto each = static_cast<size_t>(size_of(known([[source descriptor] dataType], "MPSMatrixCopy")));
  const size_t rows = _rows, columns = _columns;
  append(
      commandBuffer,
      {PassKind::kStridedCopy, {{[source data], false}, {[target data], true}}, [=](const PassBytes& memory) {
         for (size_t r = 0; r < rows; ++r) {
           for (size_t c = 0; c < columns; ++c)
             std::memcpy(memory[1].data() + to.at(r, c), memory[0].data() + from.at(r, c), each);
         }
         return PassResult{};
       }});
}
@end
