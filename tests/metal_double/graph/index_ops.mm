// Gathers and scatters. Indices are not checked: graph/numerics says what one outside gives.
#include <algorithm>

#include "base/status.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/numerics/indexing.h"

using namespace heddle::metal_double;

namespace {

void require_indices(const Building& b, const Value& indices) {
  b.require(indices.type == MPSDataTypeInt32 || indices.type == MPSDataTypeInt64,
            heddle::text("indices are i32 or i64, not ", shown(indices.type)));
}

// The first `count` axes are the same.
void require_shared(const Building& b, const Value& x, const Value& indices, size_t count) {
  b.require(count <= x.shape.size() && count <= indices.shape.size() &&
                std::equal(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(count),
                           indices.shape.begin()),
            heddle::text(shown(x.shape), " and ", shown(indices.shape), " share no ", count, " axes"));
}

// The last axis of the indices names places along axes of x, after the batch.
void require_points(const Building& b, const Value& x, const Value& indices, size_t batch) {
  require_indices(b, indices);
  require_shared(b, x, indices, batch);
  b.require(
      batch < indices.shape.size() && batch + static_cast<size_t>(indices.shape.back()) <= x.shape.size(),
      heddle::text("the indices ", shown(indices.shape), " name more axes than ", shown(x.shape), " has"));
}

// All axes but one are those of the indices.
void require_along(const Building& b, const Value& x, const Value& indices, size_t axis) {
  require_indices(b, indices);
  Shape other = x.shape;
  if (other.size() == indices.shape.size()) other[axis] = indices.shape[axis];
  b.require(other == indices.shape, heddle::text(shown(x.shape), " and the indices ", shown(indices.shape),
                                                 " differ along another axis than ", axis));
}

}  // namespace

@implementation MPSGraph (MPSGraphGatherOps)
- (MPSGraphTensor*)gatherWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                             indicesTensor:(MPSGraphTensor*)indicesTensor
                                      axis:(NSUInteger)axis
                           batchDimensions:(NSUInteger)batchDimensions
                                      name:(NSString*)name {
  Building b(self, "gatherWithUpdatesTensor:indicesTensor:axis:batchDimensions:name:");
  const Value &x = b.value(updatesTensor), &indices = b.value(indicesTensor);
  const size_t along = b.axis(static_cast<NSInteger>(axis), x.shape), batch = batchDimensions;
  require_indices(b, indices);
  require_shared(b, x, indices, batch);
  b.require(batch <= along, "the axis is one of the batch");
  return b.add(x.type, numerics::gathered_shape(x.shape, indices.shape, along, batch), {x, indices},
               [=](auto in) { return numerics::gather(in[0], in[1], along, batch); });
}

- (MPSGraphTensor*)gatherAlongAxis:(NSInteger)axis
                 withUpdatesTensor:(MPSGraphTensor*)updatesTensor
                     indicesTensor:(MPSGraphTensor*)indicesTensor
                              name:(NSString*)name {
  Building b(self, "gatherAlongAxis:withUpdatesTensor:indicesTensor:name:");
  const Value &x = b.value(updatesTensor), &indices = b.value(indicesTensor);
  const size_t along = b.axis(axis, x.shape);
  field_gathers_along(b, x);
  require_along(b, x, indices, along);
  return b.add(x.type, indices.shape, {x, indices},
               [along](auto in) { return numerics::gather_along(in[0], in[1], along); });
}

- (MPSGraphTensor*)gatherNDWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                               indicesTensor:(MPSGraphTensor*)indicesTensor
                             batchDimensions:(NSUInteger)batchDimensions
                                        name:(NSString*)name {
  Building b(self, "gatherNDWithUpdatesTensor:indicesTensor:batchDimensions:name:");
  const Value &x = b.value(updatesTensor), &indices = b.value(indicesTensor);
  const size_t batch = batchDimensions;
  require_points(b, x, indices, batch);
  return b.add(x.type, numerics::gathered_nd_shape(x.shape, indices.shape, batch), {x, indices},
               [batch](auto in) { return numerics::gather_nd(in[0], in[1], batch); });
}
@end

@implementation MPSGraph (MPSGraphScatterNDOps)
- (MPSGraphTensor*)scatterNDWithDataTensor:(MPSGraphTensor*)dataTensor
                             updatesTensor:(MPSGraphTensor*)updatesTensor
                             indicesTensor:(MPSGraphTensor*)indicesTensor
                           batchDimensions:(NSUInteger)batchDimensions
                                      mode:(MPSGraphScatterMode)mode
                                      name:(NSString*)name {
  Building b(self, "scatterNDWithDataTensor:updatesTensor:indicesTensor:batchDimensions:mode:name:");
  const Value &data = b.value(dataTensor), &updates = b.value(updatesTensor),
              &indices = b.value(indicesTensor);
  const size_t batch = batchDimensions;
  b.require_same(data, updates);
  field_scatters(b, data, mode);
  if (mode != MPSGraphScatterModeSet) b.require_numbers(data);
  require_points(b, data, indices, batch);
  b.require(updates.shape == numerics::gathered_nd_shape(data.shape, indices.shape, batch),
            heddle::text("the updates are ", shown(updates.shape), ", which is not what the indices name"));
  return b.add(data.type, data.shape, {data, updates, indices},
               [=](auto in) { return numerics::scatter_nd(in[0], in[1], in[2], batch, mode); });
}

- (MPSGraphTensor*)scatterAlongAxis:(NSInteger)axis
                     withDataTensor:(MPSGraphTensor*)dataTensor
                      updatesTensor:(MPSGraphTensor*)updatesTensor
                      indicesTensor:(MPSGraphTensor*)indicesTensor
                               mode:(MPSGraphScatterMode)mode
                               name:(NSString*)name {
  Building b(self, "scatterAlongAxis:withDataTensor:updatesTensor:indicesTensor:mode:name:");
  const Value &data = b.value(dataTensor), &updates = b.value(updatesTensor),
              &indices = b.value(indicesTensor);
  const size_t along = b.axis(axis, data.shape);
  b.require_same(data, updates);
  field_scatters(b, data, mode);
  if (mode != MPSGraphScatterModeSet) b.require_numbers(data);
  b.require(updates.shape == indices.shape, "updates and indices have one shape");
  require_along(b, data, indices, along);
  return b.add(data.type, data.shape, {data, updates, indices},
               [=](auto in) { return numerics::scatter_along(in[0], in[1], in[2], along, mode); });
}
@end
