#include "ir/ops/cases.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "tests/close_fixture.h"

namespace heddle::ir {

namespace {

const std::map<std::string, int64_t> kBinding = {{"b", 2}, {"s", 3}};

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto family : {elementwise_cases, shape_cases, movement_cases, reduce_cases, neural_cases,
                      window_cases, recurrent_cases, placement_cases, control_cases}) {
    for (Case& c : family()) all.push_back(std::move(c));
  }
  return all;
}

Extents concrete(const Shape& shape) {
  Extents extents;
  for (const Dim& dim : shape) extents.push_back(dim.evaluate(kBinding).value());
  return extents;
}

Tensor tensor(const Sample& a) {
  Tensor t = Tensor::zeros(a.dtype, concrete(a.shape));
  REQUIRE(static_cast<size_t>(t.elements()) == (a.contents.empty() ? a.values.size() : a.contents.size()));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const size_t k = static_cast<size_t>(i);
    a.contents.empty() ? t.set(i, a.values[k]) : t.set_i64(i, a.contents[k].evaluate(kBinding).value());
  }
  return t;
}

Node node_of(const Case& c) {
  Node node{find_op(c.op), "n", {}, {}, c.attributes};
  REQUIRE_MESSAGE(node.op != nullptr, c.op);
  for (size_t i = 0; i < c.in.size(); ++i) node.inputs.push_back(c.in[i].absent ? kNoValue : ValueId(i));
  for (size_t i = 0; i < c.out.size(); ++i) node.outputs.push_back(ValueId(100 + i));
  return node;
}

Value symbolic_value(const Sample& a) {
  Value value;
  value.type = {a.dtype, a.shape};
  if (a.constant) value.constant = tensor(a);
  if (!a.contents.empty()) value.contents = a.contents;
  return value;
}

Value constant_value(const Sample& a) {
  Value value;
  if (a.absent) return value;
  value.constant = tensor(a);
  value.type = value.constant->type();
  return value;
}

Result<std::vector<Value>> infer_of(const Case& c, Value (*value)(const Sample&)) {
  std::vector<Value> values;
  for (const Sample& a : c.in) values.push_back(value(a));
  std::vector<const Value*> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(c.in[i].absent ? nullptr : &values[i]);
  return infer(node_of(c), in);
}

Result<std::vector<Tensor>> run(const Case& c) {
  std::vector<Tensor> tensors;
  for (const Sample& a : c.in) tensors.push_back(a.absent ? Tensor() : tensor(a));
  std::vector<const Tensor*> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(c.in[i].absent ? nullptr : &tensors[i]);
  return evaluate(node_of(c), in);
}

bool close(double a, double b, DType dtype) {
  const double tolerance = dtype == DType::kF16 || dtype == DType::kBF16 ? 2e-3 : 2e-6;
  return test::is_close(a, b, {tolerance, tolerance});
}

}  // namespace

TEST_CASE("every operator has a case") {
  std::set<std::string> covered = {"NonZero"};  // refused whatever its operand: see the refusals
  for (const Case& c : all_cases()) covered.insert(c.op);
  for (const OpDef* op : all_ops()) CHECK_MESSAGE(covered.count(std::string(op->name)) == 1, op->name);
}

TEST_CASE("references give the values computed by hand") {
  size_t compared = 0;
  for (const Case& c : all_cases()) {
    CAPTURE(c.op);
    const Result<std::vector<Tensor>> out = run(c);
    REQUIRE_MESSAGE(out.ok(), to_string(out.status()));
    for (size_t k = 0; k < c.out.size(); ++k) {
      const Tensor& got = out.value()[k];
      const Tensor want = tensor(c.out[k]);
      CHECK_MESSAGE(got.type() == want.type(), to_string(got.type()), " instead of ", to_string(want.type()));
      if (got.extents() != want.extents()) continue;
      for (int64_t i = 0; i < want.elements(); ++i, ++compared) {
        CHECK_MESSAGE(close(got.get(i), want.get(i), want.dtype()), "element ", i, " is ", got.get(i),
                      ", not ", want.get(i));
      }
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("symbolic shapes and contents, under a binding, are the concrete ones") {
  size_t bound = 0;
  for (const Case& c : all_cases()) {
    CAPTURE(c.op);
    const Result<std::vector<Value>> symbolic = infer_of(c, symbolic_value);
    REQUIRE_MESSAGE(symbolic.ok(), to_string(symbolic.status()));
    const Result<std::vector<Tensor>> out = run(c);
    REQUIRE(out.ok());
    for (size_t k = 0; k < c.out.size(); ++k) {
      const Value& value = symbolic.value()[k];
      const Tensor& tensor = out.value()[k];
      REQUIRE(value.type.rank() == tensor.extents().rank());
      CHECK(value.type.dtype == tensor.dtype());
      for (size_t axis = 0; axis < value.type.rank(); ++axis) {
        const Dim& dim = value.type.shape[axis];
        if (dim.derived()) continue;
        CHECK_MESSAGE(dim.evaluate(kBinding) == tensor.extents()[axis], to_string(value.type));
        ++bound;
      }
      if (!value.contents.has_value()) continue;
      REQUIRE(static_cast<int64_t>(value.contents->size()) == tensor.elements());
      for (size_t i = 0; i < value.contents->size(); ++i) {
        const Dim& dim = (*value.contents)[i];
        if (!dim.derived())
          CHECK_MESSAGE(dim.evaluate(kBinding) == tensor.get_i64(static_cast<int64_t>(i)), to_string(dim));
      }
    }
  }
  CHECK(bound > 150);
}

TEST_CASE("what is known of constants' results is what the operator gives, also where it wraps") {
  size_t known = 0;
  for (const Case& c : all_cases()) {
    CAPTURE(c.op);
    const Result<std::vector<Value>> inferred = infer_of(c, constant_value);
    REQUIRE_MESSAGE(inferred.ok(), to_string(inferred.status()));
    const Result<std::vector<Tensor>> out = run(c);
    REQUIRE(out.ok());
    for (size_t k = 0; k < c.out.size(); ++k) {
      const std::optional<std::vector<Dim>> contents = inferred.value()[k].integers();
      for (size_t i = 0; contents.has_value() && i < contents->size(); ++i, ++known) {
        const int64_t made = out.value()[k].get_i64(static_cast<int64_t>(i));
        CHECK_MESSAGE((*contents)[i].is(made), to_string((*contents)[i]), ", not ", made);
      }
    }
  }
  CHECK(known > 100);
}

TEST_CASE("a shape rule keeps the symbols that the case expects") {
  for (const Case& c : all_cases()) {
    const Result<std::vector<Value>> symbolic = infer_of(c, symbolic_value);
    REQUIRE(symbolic.ok());
    for (size_t k = 0; k < c.out.size(); ++k) {
      const Value& value = symbolic.value()[k];
      CAPTURE(c.op);
      for (size_t axis = 0; axis < c.out[k].shape.size(); ++axis) {
        if (value.type.shape[axis].derived()) continue;
        CHECK_MESSAGE(value.type.shape[axis] == c.out[k].shape[axis], to_string(value.type));
      }
      if (!c.out[k].contents.empty()) {
        REQUIRE(value.contents.has_value());
        CHECK_MESSAGE(*value.contents == c.out[k].contents, to_string(*value.contents));
      }
    }
  }
}

TEST_CASE("half precision results are rounded once, at the end") {
  size_t checked = 0;
  for (Case c : all_cases()) {
    if (c.in[0].dtype != DType::kF32 || c.out[0].dtype != DType::kF32 || c.op == "Cast" ||
        c.op == "Elementwise")
      continue;
    const Result<std::vector<Tensor>> wide = run(c);
    for (DType dtype : {DType::kF16, DType::kBF16, DType::kF64}) {
      for (Sample& a : c.in) {
        if (is_float(a.dtype)) a.dtype = dtype;
      }
      const Result<std::vector<Tensor>> narrow = run(c);
      CAPTURE(c.op);
      REQUIRE_MESSAGE(narrow.ok(), to_string(narrow.status()));
      if (narrow.value()[0].dtype() == DType::kF32) continue;  // ConstantOfShape, OneHot: from an attribute
      for (int64_t i = 0; i < wide.value()[0].elements(); ++i) {
        const double want = wide.value()[0].get(i);
        const double got = narrow.value()[0].get(i);
        if (std::isnan(want)) continue;
        const double allowed = dtype == DType::kBF16 ? 0.05 : dtype == DType::kF16 ? 0.005 : 1e-6;
        CHECK_MESSAGE(test::is_close(got, want, {allowed, allowed}), got, " for ", want);
      }
      ++checked;
    }
  }
  CHECK(checked > 100);
}

}  // namespace heddle::ir
