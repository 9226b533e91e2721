// Gathers and scatters. Indices are not checked. What is read when one lies outside is undefined: here, zeros
// for the whole result; it writes nothing.
#include <algorithm>
#include <functional>

#include "ir/op.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/field_checks.h"

using namespace heddle::metal_double;
using heddle::ir::DType;
using heddle::ir::Extents;
using heddle::ir::Tensor;

namespace {

void require_indices(const Building& b, const Value& indices) {
  b.require(indices.dtype == DType::kI32 || indices.dtype == DType::kI64,
            heddle::text("indices are i32 or i64, not ", indices.dtype));
}

void copy_element(Tensor& to, int64_t at, const Tensor& from, int64_t source) {
  if (heddle::ir::is_float(to.dtype())) {
    to.set(at, from.get(source));
  } else {
    to.set_i64(at, from.get_i64(source));
  }
}

// Indices that the references would refuse are clipped for them, and what they gave is cleared.
struct Clipped {
  Tensor indices;
  std::vector<char> outside;
};
Clipped clip(const Tensor& indices, const std::function<int64_t(int64_t)>& extent_of) {
  Clipped out{Tensor::zeros(indices.dtype(), indices.extents()), {}};
  for (int64_t at = 0; at < indices.elements(); ++at) {
    const int64_t index = indices.get_i64(at), extent = extent_of(at);
    out.outside.push_back(index < 0 || index >= extent);
    out.indices.set_i64(at, std::clamp<int64_t>(index, 0, extent - 1));
  }
  return out;
}

heddle::Result<Tensor> evaluate(std::string_view op, const heddle::ir::Attributes& attributes,
                                const Tensor& x, const Tensor& indices) {
  const heddle::ir::Node node{heddle::ir::find_op(op), "", {0, 1}, {2}, attributes};
  const Tensor* const in[] = {&x, &indices};
  HEDDLE_TRY_ASSIGN(const Tensors out, heddle::ir::evaluate(node, in));
  return out[0];
}

// With the shape of ir's rule. `depth` indices make one place, along the axes from `first_axis` on.
MPSGraphTensor* gather(Building& b, std::string_view op, const heddle::ir::Attributes& attributes,
                       const Value& x, const Value& indices, size_t first_axis, int64_t depth) {
  require_indices(b, indices);
  const Value shape = [b.add_op(op, {x, indices}, attributes) value];
  const std::string name(op);
  const Extents extents = x.extents;
  return b.add(
      x.dtype, shape.extents, {x, indices}, [=](std::span<const Tensor> in) -> heddle::Result<Tensors> {
        const Clipped clipped =
            clip(in[1], [&](int64_t at) { return extents[first_axis + static_cast<size_t>(at % depth)]; });
        HEDDLE_TRY_ASSIGN(Tensor out, evaluate(name, attributes, in[0], clipped.indices));
        if (std::find(clipped.outside.begin(), clipped.outside.end(), 1) == clipped.outside.end())
          return Tensors{out};
        return Tensors{Tensor::zeros(out.dtype(), out.extents())};
      });
}

}  // namespace

@implementation MPSGraph (MPSGraphGatherOps)
- (MPSGraphTensor*)gatherWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                             indicesTensor:(MPSGraphTensor*)indicesTensor
                                      axis:(NSUInteger)axis
                           batchDimensions:(NSUInteger)batchDimensions
                                      name:(NSString*)name {
  Building b(self, "gatherWithUpdatesTensor:indicesTensor:axis:batchDimensions:name:");
  b.require(batchDimensions == 0, "batch dimensions are not in the double yet");
  const Value& x = b.value(updatesTensor);
  const size_t along = b.axis(static_cast<NSInteger>(axis), x);
  return gather(b, "Gather", {{"axis", static_cast<int64_t>(along)}}, x, b.value(indicesTensor), along, 1);
}

- (MPSGraphTensor*)gatherAlongAxis:(NSInteger)axis
                 withUpdatesTensor:(MPSGraphTensor*)updatesTensor
                     indicesTensor:(MPSGraphTensor*)indicesTensor
                              name:(NSString*)name {
  Building b(self, "gatherAlongAxis:withUpdatesTensor:indicesTensor:name:");
  const Value &x = b.value(updatesTensor), &indices = b.value(indicesTensor);
  const size_t along = b.axis(axis, x);
  field_gathers_along(b, x);
  b.require(indices.extents.rank() == x.extents.rank(), "indices have as many axes as the tensor");
  for (size_t k = 0; k < x.extents.rank(); ++k)
    b.require(k == along || indices.extents[k] == x.extents[k], "all axes but one have to be equal");
  return gather(b, "GatherElements", {{"axis", static_cast<int64_t>(along)}}, x, indices, along, 1);
}

- (MPSGraphTensor*)gatherNDWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                               indicesTensor:(MPSGraphTensor*)indicesTensor
                             batchDimensions:(NSUInteger)batchDimensions
                                        name:(NSString*)name {
  Building b(self, "gatherNDWithUpdatesTensor:indicesTensor:batchDimensions:name:");
  const Value& indices = b.value(indicesTensor);
  return gather(b, "GatherND", {{"batch_dims", static_cast<int64_t>(batchDimensions)}},
                b.value(updatesTensor), indices, batchDimensions,
                indices.extents[indices.extents.rank() - 1]);
}
@end

namespace {

double join(MPSGraphScatterMode mode, double old, double update) {
  switch (mode) {
    case MPSGraphScatterModeAdd:
      return old + update;
    case MPSGraphScatterModeSub:
      return old - update;
    case MPSGraphScatterModeMul:
      return old * update;
    case MPSGraphScatterModeDiv:
      return old / update;
    case MPSGraphScatterModeMin:
      return std::min(old, update);
    case MPSGraphScatterModeMax:
      return std::max(old, update);
    case MPSGraphScatterModeSet:
      return update;
  }
  return update;
}

int64_t join(MPSGraphScatterMode mode, int64_t old, int64_t update) {
  const auto wrapped = [](uint64_t x) { return static_cast<int64_t>(x); };
  const auto a = static_cast<uint64_t>(old), c = static_cast<uint64_t>(update);
  switch (mode) {
    case MPSGraphScatterModeAdd:
      return wrapped(a + c);
    case MPSGraphScatterModeSub:
      return wrapped(a - c);
    case MPSGraphScatterModeMul:
      return wrapped(a * c);
    case MPSGraphScatterModeDiv:
      return update == 0 ? 0 : old / update;
    case MPSGraphScatterModeMin:
      return std::min(old, update);
    case MPSGraphScatterModeMax:
      return std::max(old, update);
    case MPSGraphScatterModeSet:
      return update;
  }
  return update;
}

// Updates in reverse: MPSGraph promises no order: code that relies on the last one fails here.
Tensor scatter(const Tensor& data, const Tensor& updates, MPSGraphScatterMode mode,
               const std::function<int64_t(int64_t)>& target) {
  Tensor out = Tensor::zeros(data.dtype(), data.extents());
  for (int64_t at = 0; at < out.elements(); ++at) copy_element(out, at, data, at);
  for (int64_t at = updates.elements(); at-- > 0;) {
    const int64_t to = target(at);
    if (to < 0) continue;
    if (heddle::ir::is_float(out.dtype())) {
      out.set(to, join(mode, out.get(to), updates.get(at)));
    } else {
      out.set_i64(to, join(mode, out.get_i64(to), updates.get_i64(at)));
    }
  }
  return out;
}

}  // namespace

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
  b.require(batchDimensions == 0, "batch dimensions are not in the double yet");
  b.require_same(data, updates);
  field_scatters(b, data, mode);
  require_indices(b, indices);
  b.add_op("ScatterND", {data, indices, updates});  // for the shape rule
  const int64_t depth = indices.extents[indices.extents.rank() - 1];
  int64_t slice = 1;
  for (size_t k = static_cast<size_t>(depth); k < data.extents.rank(); ++k) slice *= data.extents[k];
  const Extents extents = data.extents;
  return b.add(data.dtype, extents, {data, updates, indices},
               [=](std::span<const Tensor> in) -> heddle::Result<Tensors> {
                 const auto target = [&](int64_t at) -> int64_t {
                   int64_t row = 0;
                   for (int64_t k = 0; k < depth; ++k) {
                     const int64_t index = in[2].get_i64(at / slice * depth + k);
                     const int64_t extent = extents[static_cast<size_t>(k)];
                     if (index < 0 || index >= extent) return -1;
                     row = row * extent + index;
                   }
                   return row * slice + at % slice;
                 };
                 return Tensors{scatter(in[0], in[1], mode, target)};
               });
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
  b.require_same(data, updates);
  field_scatters(b, data, mode);
  require_indices(b, indices);
  const size_t along = b.axis(axis, data);
  b.require(indices.extents == updates.extents && indices.extents.rank() == data.extents.rank(),
            "updates and indices have one shape, and as many axes as the data");
  const Extents to = data.extents, from = updates.extents;
  return b.add(data.dtype, to, {data, updates, indices},
               [=](std::span<const Tensor> in) -> heddle::Result<Tensors> {
                 const auto target = [&](int64_t at) -> int64_t {
                   int64_t rest = at, place = 0, stride = 1;
                   for (size_t k = to.rank(); k-- > 0;) {
                     const int64_t index = k == along ? in[2].get_i64(at) : rest % from[k];
                     if (index < 0 || index >= to[k]) return -1;
                     rest /= from[k];
                     place += index * stride;
                     stride *= to[k];
                   }
                   return place;
                 };
                 return Tensors{scatter(in[0], in[1], mode, target)};
               });
}
@end
