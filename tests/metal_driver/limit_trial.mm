#include "limit_trial.h"

#include "limit_probes.h"

namespace heddle::limits {

std::string ask(const Probe& probe, bool small) {
  @autoreleasepool {
    return probe.find(small);
  }
}

NSArray<NSNumber*>* numbers(const Shape& shape) {
  NSMutableArray<NSNumber*>* all = [NSMutableArray array];
  for (const int64_t each : shape) [all addObject:[NSNumber numberWithLongLong:each]];
  return all;
}

int64_t elements(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t each : shape) product *= each;
  return product;
}

Trial::Trial() : device_(MTLCreateSystemDefaultDevice()) {
  if (!device_) throw Refused("there is no Metal device");
  queue_ = [device_ newCommandQueue];
  graph_ = [MPSGraph new];
}

Trial::~Trial() {
  for (const id<MTLBuffer> buffer : buffers_) [buffer release];
  [graph_ release];
  [queue_ release];
  [device_ release];
}

id<MTLBuffer> Trial::room(uint64_t bytes) {
  held_ += bytes;
  if (bytes > [device_ maxBufferLength] || held_ > [device_ recommendedMaxWorkingSetSize])
    throw TooLarge(std::to_string(held_) + " bytes are more than this machine gives");
  const id<MTLBuffer> buffer = [device_ newBufferWithLength:bytes > 0 ? bytes : 1
                                                    options:MTLResourceStorageModeShared];
  if (!buffer) throw TooLarge("no buffer of " + std::to_string(bytes) + " bytes");
  buffers_.push_back(buffer);
  return buffer;
}

MPSGraphTensor* Trial::feed(const Shape& shape, MPSDataType type, size_t size) {
  fed_.push_back(room(static_cast<uint64_t>(elements(shape)) * size));
  placeholders_.push_back([graph_ placeholderWithShape:numbers(shape) dataType:type name:nil]);
  shapes_.push_back(shape);
  types_.push_back(type);
  return placeholders_.back();
}

MPSGraphExecutable* Trial::compile(const std::vector<MPSGraphTensor*>& targets) {
  std::vector<id> types;
  for (size_t i = 0; i < placeholders_.size(); ++i)
    types.push_back([[[MPSGraphShapedType alloc] initWithShape:numbers(shapes_[i])
                                                      dataType:types_[i]] autorelease]);
  MPSGraphTensorShapedTypeDictionary* feeds = [NSDictionary dictionaryWithObjects:types.data()
                                                                          forKeys:placeholders_.data()
                                                                            count:placeholders_.size()];
  MPSGraphExecutable* executable = [graph_ compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:device_]
                                                       feeds:feeds
                                               targetTensors:[NSArray arrayWithObjects:targets.data()
                                                                                 count:targets.size()]
                                            targetOperations:nil
                                       compilationDescriptor:nil];
  if (!executable) throw Refused("compileWithDevice: answers nil");
  return executable;
}

NSArray<MPSGraphTensorData*>* Trial::feeds(MPSGraphExecutable* executable) {
  NSMutableArray<MPSGraphTensorData*>* all = [NSMutableArray array];
  for (MPSGraphTensor* wanted in [executable feedTensors]) {
    for (size_t i = 0; i < placeholders_.size(); ++i) {
      if (placeholders_[i] == wanted) [all addObject:data(fed_[i], shapes_[i], types_[i])];
    }
  }
  return all;
}

MPSGraphTensorData* Trial::data(id<MTLBuffer> buffer, const Shape& shape, MPSDataType type) {
  return [[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer shape:numbers(shape)
                                               dataType:type] autorelease];
}

void Trial::commit(MPSCommandBuffer* commands) {
  const id<MTLCommandBuffer> last = [commands rootCommandBuffer];
  [last commit];
  [last waitUntilCompleted];
  if ([last status] == MTLCommandBufferStatusError)
    throw Refused([[[last error] localizedDescription] UTF8String]);
}

std::vector<const void*> Trial::run(const std::vector<MPSGraphTensor*>& targets,
                                    const std::vector<Shape>& shapes, MPSDataType type, size_t size) {
  @autoreleasepool {
    MPSGraphExecutable* executable = compile(targets);
    std::vector<const void*> results;
    NSMutableArray<MPSGraphTensorData*>* out = [NSMutableArray array];
    for (const Shape& shape : shapes) {
      const id<MTLBuffer> buffer = room(static_cast<uint64_t>(elements(shape)) * size);
      [out addObject:data(buffer, shape, type)];
      results.push_back([buffer contents]);
    }
    MPSCommandBuffer* commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue_];
    [executable encodeToCommandBuffer:commands
                          inputsArray:feeds(executable)
                         resultsArray:out
                  executionDescriptor:nil];
    commit(commands);
    return results;
  }
}

}  // namespace heddle::limits
