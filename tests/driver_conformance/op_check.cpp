#include "op_check_fixture.h"

#include "device/plain_source_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {1e-9, 1e-9};
    case DType::kF16:
      return {4e-3, 4e-3};
    case DType::kBF16:
      return {2e-2, 2e-2};
    default:
      return {2e-5, 2e-5};
  }
}

ir::Tensor make_tensor(const In& in, DType t, uint32_t seed) {
  const DType dtype = in.dtype.value_or(t);
  if (!in.fixed) return random_tensor(dtype, in.extents, seed, in.low, in.high);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, in.extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set_i64(i, (*in.fixed)[static_cast<size_t>(i)]);
  return tensor;
}

// `tensors` are those of the case's operands, absent ones empty.
Result<Operands> make_inputs_of(const Case& c, DType t, std::vector<ir::Tensor>& tensors) {
  Operands out;
  ir::Builder builder;
  std::vector<ir::ValueId> ids;
  tensors.resize(c.in.size());
  for (size_t i = 0; i < c.in.size(); ++i) {
    ids.push_back(ir::kNoValue);
    if (c.in[i].absent) continue;
    tensors[i] = make_tensor(c.in[i], t, static_cast<uint32_t>(i) + 1);
    if (c.in[i].constant) {
      ids[i] = builder.constant(tensors[i]);
    } else {
      ids[i] = builder.input(text("in", i), tensors[i].type());
      out.inputs.push_back(tensors[i]);
    }
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ir::ValueId> results,
                    builder.nodes(c.op, ids, c.outputs, c.attributes, "node"));
  for (ir::ValueId id : results) builder.output(id);
  HEDDLE_TRY_ASSIGN(out.graph, builder.take());
  return out;
}

enum class Form { kContiguous, kStrided };

// Operands that were strided give the very bits of others: the contiguous run sets `first`.
Status check_form(device::Device& device, const device::Module& module, const Operands& operands, Form form,
                  std::vector<ir::Tensor>& first) {
  HEDDLE_TRY_ASSIGN(const auto program, compile(module, operands.inputs));
  Session session(device);
  std::vector<device::View> views;
  for (const ir::Tensor& tensor : operands.inputs) {
    views.push_back(upload(device, tensor));
    if (form == Form::kContiguous) continue;
    device::CommandList list;  // a run takes contiguous operands: a copy makes them so
    list.fill(views.back(), 0);
    list.copy(upload_strided(device, tensor), views.back());
    HEDDLE_TRY(session.submit(list));
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ir::Tensor> got, session.run(program, views));
  if (got.size() != operands.wanted.size()) return Status::internal("it has ", got.size(), " outputs");
  for (size_t i = 0; i < got.size(); ++i) {
    if (form == Form::kContiguous) {
      const std::string differs = difference(got[i], operands.wanted[i], tolerance_of(got[i].dtype()));
      if (!differs.empty()) return Status::internal("output ", i, ": ", differs);
    } else if (!same_bits(got[i], first[i])) {
      return Status::internal("output ", i, " of strided operands has other bits");
    }
  }
  first = got;
  return {};
}

}  // namespace

Result<Operands> make_inputs(const Case& c, DType t) {
  std::vector<ir::Tensor> tensors;
  return make_inputs_of(c, t, tensors);
}

Result<Operands> make_operands(const Case& c, DType t) {
  std::vector<ir::Tensor> tensors;
  HEDDLE_TRY_ASSIGN(Operands out, make_inputs_of(c, t, tensors));
  std::vector<const ir::Tensor*> pointers;
  for (size_t i = 0; i < c.in.size(); ++i) pointers.push_back(c.in[i].absent ? nullptr : &tensors[i]);
  HEDDLE_TRY_ASSIGN(out.wanted, ir::evaluate(out.graph.nodes.back(), pointers));
  return out;
}

Status check_operands(device::Device& device, const Operands& operands) {
  HEDDLE_TRY_ASSIGN(const auto module,
                    device.load(operands.graph, {}, device::plain_source(device), NoLocksHeld()));
  std::vector<ir::Tensor> first;
  HEDDLE_TRY(check_form(device, *module, operands, Form::kContiguous, first));
  return check_form(device, *module, operands, Form::kStrided, first);
}

Status check_case(device::Device& device, const Case& c, DType dtype) {
  HEDDLE_TRY_ASSIGN(const Operands operands, make_operands(c, dtype));
  return check_operands(device, operands);
}

}  // namespace heddle::conformance
