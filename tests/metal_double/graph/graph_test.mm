// What MPSGraph's double refuses, and how an executable runs.
#include <doctest/doctest.h>

#include "base/thread.h"
#include "tests/metal_double/dying_fixture.h"
#include "tests/metal_double/graph/building.h"

namespace heddle::metal_double {
namespace {

MPSGraphTensor* placeholder(MPSGraph* graph, const Shape& shape, MPSDataType type = MPSDataTypeFloat32) {
  return [graph placeholderWithShape:numbers_from(shape) dataType:type name:nil];
}

TEST_CASE("MPSGraph double: what MPSGraph does not take is refused, by the method's name") {
  struct Row {
    const char* method;
    void (^call)(MPSGraph*);
  };
  const Row rows[] = {{"placeholderWithShape", ^(MPSGraph* g){
                           placeholder(g, {0, 3});
}
}  // namespace
, {"additionWithPrimaryTensor", ^(MPSGraph* g){
       [g additionWithPrimaryTensor:placeholder(g, {2, 3}) secondaryTensor:placeholder(g, {2, 4}) name:nil];
}  // namespace heddle::metal_double
}
, {"multiplicationWithPrimaryTensor", ^(MPSGraph* g){
       [g multiplicationWithPrimaryTensor:placeholder(g, {2})
                          secondaryTensor:placeholder(g, {2}, MPSDataTypeInt32)
                                     name:nil];
}
}
, {"matrixMultiplicationWithPrimaryTensor", ^(MPSGraph* g){
       MPSGraphTensor* x = placeholder(g, {2, 2}, MPSDataTypeInt64);
[g matrixMultiplicationWithPrimaryTensor:x secondaryTensor:x name:nil];
}
}
, {"exponentWithTensor", ^(MPSGraph* g){
       [g exponentWithTensor:placeholder(g, {2}, MPSDataTypeInt32) name:nil];
}
}
, {"reshapeTensor", ^(MPSGraph* g){
       [g reshapeTensor:placeholder(g, {2, 3}) withShape:numbers_from({4}) name:nil];
}
}
, {"gatherWithUpdatesTensor", ^(MPSGraph* g){
       MPSGraphTensor* x = placeholder(g, {4});
[g gatherWithUpdatesTensor:x indicesTensor:x axis:0 batchDimensions:0 name:nil];
}
}
,
}
;
for (const Row& row : rows) {
  CAPTURE(row.method);
  @autoreleasepool {
    MPSGraph* graph = [[[MPSGraph alloc] init] autorelease];
    std::string reason;
    @try {
      row.call(graph);
    } @catch (NSException* exception) {
      reason = [[exception reason] UTF8String];
    }
    CHECK_MESSAGE(reason.find(row.method) != std::string::npos, reason);
  }
}
}

void two_threads_in_one_graph() {
  MPSGraph* graph = [[MPSGraph alloc] init];
  MPSGraphTensor* x = placeholder(graph, {1024});
  const auto work = [&] {
    @autoreleasepool {
      for (int i = 0; i < 20000; ++i) [graph negativeWithTensor:x name:nil];
    }
  };
  const Thread other("other", work);
  work();
}

const Misuse kMisuses[] = {
    {"two threads in one graph", two_threads_in_one_graph, "two threads use one MPSGraph at once"}};
TEST_CASE("a child misuses MPSGraph" * doctest::skip()) { run_misuse_of_child(kMisuses); }
TEST_CASE("MPSGraph double: two threads in one graph abort") {
  check_all_die(kMisuses, "a child misuses MPSGraph");
}

TEST_CASE("MPSGraph double: an executable runs on a queue and its completion handler has the results") {
  @autoreleasepool {
    const id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
    MPSGraph* graph = [[[MPSGraph alloc] init] autorelease];
    MPSGraphTensor* x = placeholder(graph, {4});
    MPSGraphTensor* y = [graph additionWithPrimaryTensor:x secondaryTensor:x name:nil];
    MPSGraphShapedType* type = [[[MPSGraphShapedType alloc] initWithShape:[x shape]
                                                                 dataType:MPSDataTypeFloat32] autorelease];
    MPSGraphExecutable* executable = [graph compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:device]
                                                        feeds:[NSDictionary dictionaryWithObject:type
                                                                                          forKey:x]
                                                targetTensors:[NSArray arrayWithObject:y]
                                             targetOperations:nil
                                        compilationDescriptor:nil];
    const float numbers[] = {1, 2, 3, 4};
    const auto data = [&](const id<MTLBuffer> buffer) {
      return [NSArray
          arrayWithObject:[[[MPSGraphTensorData alloc] initWithMTLBuffer:buffer
                                                                   shape:[x shape]
                                                                dataType:MPSDataTypeFloat32] autorelease]];
    };
    const id<MTLBuffer> from = [[device newBufferWithBytes:numbers length:16 options:0] autorelease];
    const id<MTLBuffer> to = [[device newBufferWithLength:16 options:0] autorelease];
    MPSGraphExecutableExecutionDescriptor* how =
        [[[MPSGraphExecutableExecutionDescriptor alloc] init] autorelease];
    __block NSUInteger handed = 0;
    [how setCompletionHandler:^(NSArray<MPSGraphTensorData*>* results, NSError*) {
      handed = [results count];
    }];
    [how setWaitUntilCompleted:YES];
    [executable runAsyncWithMTLCommandQueue:[[device newCommandQueue] autorelease]
                                inputsArray:data(from)
                               resultsArray:data(to)
                        executionDescriptor:how];
    CHECK(static_cast<const float*>([to contents])[3] == 8);
    CHECK(handed == 1);
  }
}

}  // namespace
}  // namespace heddle::metal_double
