#include "drivers/metal/kernels/kernels.h"

#include <string>

#include "drivers/metal/failure.h"

namespace heddle::metal {
namespace {

NSString* const kSource = @R"msl(
#include <metal_stdlib>
using namespace metal;

struct Walk {
  uint rank;
  uint unused;
  uint extents[8];
  long from_start, to_start;
  long from[8], to[8];
};

inline long2 offsets(constant Walk& walk, uint element) {
  long2 at = long2(walk.from_start, walk.to_start);
  for (uint axis = walk.rank; axis-- > 0;) {
    const uint index = element % walk.extents[axis];
    element /= walk.extents[axis];
    at += long2(walk.from[axis], walk.to[axis]) * long(index);
  }
  return at;
}

kernel void heddle_copy_1(device const uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const long2 at = offsets(walk, i);
  to[at.y] = from[at.x];
}
kernel void heddle_copy_2(device const ushort* from [[buffer(0)]], device ushort* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const long2 at = offsets(walk, i);
  to[at.y] = from[at.x];
}
kernel void heddle_copy_4(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const long2 at = offsets(walk, i);
  to[at.y] = from[at.x];
}
kernel void heddle_copy_8(device const ulong* from [[buffer(0)]], device ulong* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const long2 at = offsets(walk, i);
  to[at.y] = from[at.x];
}

kernel void heddle_fill_1(constant uchar& value [[buffer(0)]], device uchar* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  to[offsets(walk, i).y] = value;
}
kernel void heddle_fill_2(constant ushort& value [[buffer(0)]], device ushort* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  to[offsets(walk, i).y] = value;
}
kernel void heddle_fill_4(constant uint& value [[buffer(0)]], device uint* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  to[offsets(walk, i).y] = value;
}
kernel void heddle_fill_8(constant ulong& value [[buffer(0)]], device ulong* to [[buffer(1)]],
                          constant Walk& walk [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  to[offsets(walk, i).y] = value;
}
)msl";

Result<Owned<id<MTLComputePipelineState>>> pipeline(id<MTLDevice> device, id<MTLLibrary> library,
                                                    const std::string& name) {
  const auto function = Owned<id<MTLFunction>>::adopt(
      [library newFunctionWithName:[NSString stringWithUTF8String:name.c_str()]]);
  if (!function) return Status::internal("the driver's Metal library has no kernel ", name);
  NSError* error = nil;
  auto state =
      Owned<id<MTLComputePipelineState>>::adopt([device newComputePipelineStateWithFunction:function.get()
                                                                                      error:&error]);
  if (!state) return compile_failure(name, error);
  return state;
}

}  // namespace

Result<Kernels> Kernels::make(id<MTLDevice> device, const Defences& defences) {
  NSError* error = nil;
  const auto library = Owned<id<MTLLibrary>>::adopt([device newLibraryWithSource:kSource
                                                                         options:nil
                                                                           error:&error]);
  Kernels kernels;
  if (!library && !defences.notices_nil) return kernels;
  if (!library) return compile_failure("the driver's Metal kernels", error);
  for (const int64_t size : {1, 2, 4, 8}) {
    HEDDLE_TRY_ASSIGN(kernels.copies_[variant(size)],
                      pipeline(device, library.get(), text("heddle_copy_", size)));
    HEDDLE_TRY_ASSIGN(kernels.fills_[variant(size)],
                      pipeline(device, library.get(), text("heddle_fill_", size)));
  }
  return kernels;
}

}  // namespace heddle::metal
