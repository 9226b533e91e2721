#import "library.h"

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

@implementation DoubleLibrary
- (id<MTLDevice>)device {
  return _device;
}
- (NSArray<NSString*>*)functionNames {
  NSMutableArray* const names = [NSMutableArray array];
  for (const auto& kernel : _kernels) [names addObject:[NSString stringWithUTF8String:kernel.name.c_str()]];
  return names;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)functionName {
  for (const auto& kernel : _kernels) {
    if (kernel.name != [functionName UTF8String]) continue;
    DoubleFunction* const made = [DoubleFunction new];
    made->_device = [_device retain];
    made->_source = kernel;
    return made;
  }
  return nil;
}
- (void)dealloc {
  [_device release];
  [super dealloc];
}
@end

@implementation DoubleFunction
- (id<MTLDevice>)device {
  return _device;
}
- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}
- (NSString*)name {
  return [NSString stringWithUTF8String:_source.name.c_str()];
}
- (void)dealloc {
  [_device release];
  [super dealloc];
}
@end

@implementation DoublePipeline
- (id<MTLDevice>)device {
  return _device;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return 1024;
}
- (NSUInteger)threadExecutionWidth {
  return 32;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return 0;
}
- (void)dealloc {
  [_name release];
  [_device release];
  [super dealloc];
}
@end
