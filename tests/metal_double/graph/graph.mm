// MPSGraph's objects but the executable.
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/executable.h"

using heddle::metal_double::Building;
using heddle::metal_double::Value;

@implementation MPSGraphObject
@end

@implementation MPSGraphType
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraphShapedType
@synthesize shape = _shape, dataType = _dataType;
- (instancetype)initWithShape:(MPSShape*)shape dataType:(MPSDataType)dataType {
  if ((self = [super init])) {
    _shape = [shape copy];
    _dataType = dataType;
  }
  return self;
}
- (void)dealloc {
  [_shape release];
  [super dealloc];
}
@end

@implementation MPSGraphDevice
@synthesize metalDevice = _metalDevice;
+ (instancetype)deviceWithMTLDevice:(id<MTLDevice>)metalDevice {
  MPSGraphDevice* device = [[[self alloc] init] autorelease];
  device->_metalDevice = [metalDevice retain];
  return device;
}
- (void)dealloc {
  [_metalDevice release];
  [super dealloc];
}
@end

@implementation MPSGraphTensor
@synthesize shape = _shape, dataType = _dataType;
+ (instancetype)tensorWithValue:(const Value&)value {
  MPSGraphTensor* tensor = [[[self alloc] init] autorelease];
  tensor->_shape = [heddle::metal_double::numbers_from(value.shape) retain];
  tensor->_dataType = value.type;
  tensor->_recipe = new Value(value);
  return tensor;
}
- (const Value&)value {
  return *static_cast<const Value*>(_recipe);
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
- (void)dealloc {
  delete static_cast<Value*>(_recipe);
  [_shape release];
  [super dealloc];
}
@end

@implementation MPSGraphCompilationDescriptor
@synthesize optimizationLevel = _optimizationLevel,
            waitForCompilationCompletion = _waitForCompilationCompletion;
- (instancetype)init {
  if ((self = [super init])) _optimizationLevel = MPSGraphOptimizationLevel1;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraph
@synthesize options = _options;
+ (instancetype)new {
  return [[self alloc] init];
}
- (instancetype)init {
  if ((self = [super init])) {
    _building = heddle::metal_double::make_graph();
    _options = MPSGraphOptionsDefault;
  }
  return self;
}
- (void*)building {
  return _building;
}
- (MPSGraphExecutable*)compileWithDevice:(MPSGraphDevice*)device
                                   feeds:(MPSGraphTensorShapedTypeDictionary*)feeds
                           targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                        targetOperations:(NSArray<MPSGraphOperation*>*)targetOperations
                   compilationDescriptor:(MPSGraphCompilationDescriptor*)compilationDescriptor {
  return heddle::metal_double::compile(self, device, feeds, targetTensors);
}
- (void)dealloc {
  heddle::metal_double::destroy(static_cast<heddle::metal_double::Graph*>(_building));
  [super dealloc];
}
@end
