// field_fixture.h: what others met on a Mac, met by the driver on the double: with what it does about it, and
// without.
//
//   What       A Row is one limit of one Mac, scaled down where it is large; what runs into it; and the
//              driver's defence taken away. Without it the process ends, or the numbers are wrong.
//   Children   What ends the process runs in one of its own, which finds its row by name.
//   Threads    One test at a time.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "metal_driver_fixture.h"
#include "tests/child_fixture.h"
#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/metal_double/metal/field_limits.h"

namespace heddle::metal::test {

using conformance::Case;
using conformance::In;
using metal_double::Chip;
using metal_double::FieldLimits;
using metal_double::FieldMac;

inline constexpr FieldMac kOldest{14, 0, Chip::kM1}, kNewest{26, 0, Chip::kM4};

enum class Outcome { right, wrong, refused, dies, failed };

struct Scale {
  FieldLimits& field;
  Limits& limits;
};

struct Row {
  const char* limit;  // its name in both tables
  const char* met_by;
  FieldMac mac;
  void (*scale)(Scale) = [](Scale) {};
  std::function<Status(device::Device&)> meet;
  Outcome with = Outcome::right;
  void (*lift)(MetalOptions&) = nullptr;  // null: the driver does the same on every Mac
  Outcome without = Outcome::dies;
};

inline Mac driver_mac(const FieldMac& mac) {
  const int64_t families[] = {7, 8, 9, 9};
  return {mac.major, mac.minor, families[static_cast<size_t>(mac.chip)]};
}

// A node whose values are compared with the reference's.
inline std::function<Status(device::Device&)> node(Case c, DType dtype = DType::kF32) {
  return
      [c = std::move(c), dtype](device::Device& device) { return conformance::check_case(device, c, dtype); };
}

// The same for a graph of several.
inline Status check_graph(device::Device& device, const ir::Graph& graph,
                          const std::vector<ir::Tensor>& inputs) {
  HEDDLE_TRY_ASSIGN(const auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
  HEDDLE_TRY_ASSIGN(const auto program, conformance::compile(*module, inputs));
  HEDDLE_TRY_ASSIGN(const auto got, Session(device).run(program, inputs));
  HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string differs = conformance::difference(got[i], wanted[i], {2e-5, 2e-5});
    if (!differs.empty()) return Status::internal("output ", i, ": ", differs);
  }
  return {};
}

struct Met {
  Outcome outcome;
  std::string said;
};

inline Met meet(const Row& row, bool defended) {
  const Machine machine;
  MetalOptions options{{}, kStuckAfter, Limits::of(driver_mac(row.mac))};
  FieldLimits field = metal_double::field_limits_of(row.mac);
  row.scale({field, *options.limits});
  if (!defended) row.lift(options);
  metal_double::become(row.mac, field);
  const auto device = make_metal_device(options);
  REQUIRE_MESSAGE(device.ok(), to_string(device.status()));
  const Status status = row.meet(**device);
  const Outcome outcome = status.ok()                          ? Outcome::right
                          : status.code() == Code::unsupported ? Outcome::refused
                          : status.code() == Code::internal    ? Outcome::wrong
                                                               : Outcome::failed;
  return {outcome, to_string(status)};
}

// Each in a function that is no longer than functions may be.
using Rows = const std::vector<Row>& (*)();
const std::vector<Row>& field_product_rows();
const std::vector<Row>& field_attention_rows();
const std::vector<Row>& field_convolution_rows();
const std::vector<Row>& field_size_rows();
const std::vector<Row>& field_made_rows();
const std::vector<Row>& field_reduction_rows();
const std::vector<Row>& field_scatter_rows();
const std::vector<Row>& field_order_rows();
const std::vector<Row>& field_element_rows();
const std::vector<Row>& field_device_rows();
inline constexpr Rows kFieldRows[] = {field_product_rows, field_attention_rows, field_convolution_rows,
                                      field_size_rows,    field_made_rows,      field_reduction_rows,
                                      field_scatter_rows, field_order_rows,     field_element_rows,
                                      field_device_rows};

inline constexpr const char* kChildOfRows = "a child meets a limit";
inline constexpr const char* kRowVariable = "HEDDLE_TEST_FIELD_ROW";

// In the child. A row is named by its own words and its limit's.
inline std::string name_of(const Row& row) { return std::string(row.limit) + ": " + row.met_by; }
inline void meet_row_of_child() {
  const char* const name = getenv(kRowVariable);
  REQUIRE(name);
  signal(SIGABRT, SIG_DFL);
  for (const Rows rows : kFieldRows) {
    for (const Row& row : rows()) {
      if (name_of(row) == name) meet(row, false);
    }
  }
}

inline Met meet_in_child(const Row& row) {
  const heddle::test::Child end =
      heddle::test::run_child(kChildOfRows, {std::string(kRowVariable) + "=" + name_of(row)});
  return {end.signal == SIGABRT ? Outcome::dies : Outcome::failed, end.said};
}

inline void check_rows(Rows rows) {
  for (const Row& row : rows()) {
    CAPTURE(name_of(row));
    const Met with = meet(row, true);
    CHECK_MESSAGE(with.outcome == row.with, with.said);
    if (row.lift == nullptr) continue;
    const Met without = row.without == Outcome::dies ? meet_in_child(row) : meet(row, false);
    CHECK_MESSAGE(without.outcome == row.without, "without its defence: ", without.said);
    if (row.without != Outcome::dies) continue;
    CHECK_MESSAGE(without.said.find("failed assertion") != std::string::npos, without.said);
  }
}

}  // namespace heddle::metal::test
