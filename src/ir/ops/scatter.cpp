// Operators that write by index into a copy of their first operand.
#include <algorithm>
#include <cmath>

#include "ir/ops/rules.h"
#include "ir/ops/tables.h"
#include "ir/ops/walk.h"

namespace heddle::ir {

namespace {

Status check_reduction(const Node& node, const Value& data) {
  const std::string given = node.attributes.str("reduction", "none");
  if (given == "none") return {};
  for (std::string_view known : {"add", "mul", "max", "min"}) {
    if (given != known) continue;
    if (data.type.dtype == DType::kU64 && (given == "max" || given == "min")) {
      return Status::unsupported("data is ", data.type, "; u64 cannot be reduced by '", given, "'");
    }
    if (data.type.dtype != DType::kBool) return {};
    return Status::invalid("data is ", data.type, "; bools cannot be reduced by '", given, "'");
  }
  return Status::invalid("attribute 'reduction' is '", given, "'; it has to be none, add, mul, max or min");
}

// Updates of one place are taken in the order in which they stand. f16 and bf16 are rounded after each.
class Writer {
 public:
  Writer(const Node& node, Tensor& out)
      : reduction_(node.attributes.str("reduction", "none")), out_(out), real_(is_float(out.dtype())) {}

  void write(int64_t to, const Tensor& updates, int64_t from) {
    if (reduction_ == "none") {
      copy_element(out_, to, updates, from);
    } else if (real_) {
      out_.set(to, join(out_.get(to), updates.get(from)));
    } else {
      out_.set_i64(to, join(out_.get_i64(to), updates.get_i64(from)));
    }
  }

 private:
  double join(double a, double b) const {
    if (reduction_ == "add") return a + b;
    if (reduction_ == "mul") return a * b;
    if (std::isnan(a) || std::isnan(b)) return a + b;
    return reduction_ == "max" ? std::max(a, b) : std::min(a, b);
  }
  int64_t join(int64_t a, int64_t b) const {
    if (reduction_ == "add") return wrap_add(a, b);
    if (reduction_ == "mul") return wrap_mul(a, b);
    return reduction_ == "max" ? std::max(a, b) : std::min(a, b);
  }

  std::string reduction_;
  Tensor& out_;
  bool real_;
};

void copy_all(Tensor& to, const Tensor& from) {
  for (int64_t i = 0; i < to.elements(); ++i) copy_element(to, i, from, i);
}

Status reference_scatter_elements(const Node& node, DataIn in, DataOut out) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), in[0]->type()));
  copy_all(out[0], *in[0]);
  const Strides strides(out[0].extents());
  Writer writer(node, out[0]);
  Status status;
  walk(in[1]->extents(), [&](const Index& index, int64_t flat) {
    const Result<int64_t> at = place_of(in[1]->get_i64(flat), out[0].extents()[axis]);
    if (!at.ok()) {
      if (status.ok()) status = at.status();
      return;
    }
    // A stride of an extent 1 is 0; its index is 0 too.
    Index target = index;
    target[axis] = at.value();
    writer.write(strides.at(target), *in[2], flat);
  });
  return status;
}

Inferred infer_scatter_elements(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const TensorType& indices = in[1]->type;
  HEDDLE_TRY(check_reduction(node, *in[0]));
  HEDDLE_TRY(accept(*in[1], "indices", Accept::kIndex));
  HEDDLE_TRY(same_dtype(*in[0], "data", *in[2], "updates"));
  HEDDLE_TRY(check_rank(*in[1], "indices", type.rank(), type.rank()));
  HEDDLE_TRY(check_shape(*in[2], "updates", indices.shape));
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(node.attributes.i64("axis"), type));
  for (size_t i = 0; i < type.rank(); ++i) {
    const bool both = indices.shape[i].is_static() && type.shape[i].is_static();
    if (i != axis && both && indices.shape[i].value() > type.shape[i].value()) {
      return Status::invalid("indices is ", indices, "; axis ", i, " has to be at most that of ", type);
    }
  }
  return one(type.dtype, type.shape);
}

Status reference_scatter_nd(const Node& node, DataIn in, DataOut out) {
  const Extents& extents = out[0].extents();
  const Extents& indices = in[1]->extents();
  const int64_t depth = indices[indices.rank() - 1];
  int64_t slice = 1;
  for (size_t i = static_cast<size_t>(depth); i < extents.rank(); ++i) slice *= extents[i];
  copy_all(out[0], *in[0]);
  if (in[2]->elements() == 0) return {};
  Writer writer(node, out[0]);
  for (int64_t row = 0; row < in[2]->elements() / slice; ++row) {
    int64_t target = 0;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t extent = extents[static_cast<size_t>(i)];
      HEDDLE_TRY_ASSIGN(const int64_t at, place_of(in[1]->get_i64(row * depth + i), extent));
      target = target * extent + at;
    }
    for (int64_t i = 0; i < slice; ++i) writer.write(target * slice + i, *in[2], row * slice + i);
  }
  return {};
}

Inferred infer_scatter_nd(const Node& node, Operands in) {
  const TensorType& type = in[0]->type;
  const Shape& indices = in[1]->type.shape;
  HEDDLE_TRY(check_reduction(node, *in[0]));
  HEDDLE_TRY(accept(*in[1], "indices", Accept::kIndex));
  HEDDLE_TRY(same_dtype(*in[0], "data", *in[2], "updates"));
  HEDDLE_TRY(check_rank(*in[1], "indices", 1));
  const Dim& depth = indices.back();
  if (!depth.is_static())
    return Status::unsupported("indices is ", in[1]->type, "; its last extent has to be a number");
  if (depth.value() < 0 || depth.value() > static_cast<int64_t>(type.rank())) {
    return Status::invalid("indices is ", in[1]->type, "; its last extent has to be 0 to ", type.rank(),
                           " for ", type);
  }
  Shape updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), type.shape.begin() + depth.value(), type.shape.end());
  HEDDLE_TRY(check_shape(*in[2], "updates", updates));
  return one(type.dtype, type.shape);
}

}  // namespace

std::vector<OpDef> scatter_ops() {
  using enum AttributeKind;
  return {
      {"ScatterElements",
       3,
       3,
       1,
       1,
       {{"axis", kInt}, {"reduction", kString}},
       infer_scatter_elements,
       reference_scatter_elements},
      {"ScatterND", 3, 3, 1, 1, {{"reduction", kString}}, infer_scatter_nd, reference_scatter_nd},
  };
}

}  // namespace heddle::ir
