// Copies, command buffers, loops and results as the field met them; which Mac is refused; and that every row
// of both tables is met by a test.
#include <set>

#include "field_fixture.h"

namespace heddle::metal::test {
namespace {

Status unless(bool holds, const char* wrong) { return holds ? Status() : Status::internal(wrong); }

Status copied(device::Device& device) {
  const ir::Tensor wanted = numbers({70}, 1);
  const device::View from = upload(device, wanted), to = empty_like(device, DType::kF32, {70});
  Session session(device);
  device::CommandList list;
  list.fill(to, 0);
  list.copy(from, to);
  HEDDLE_TRY(session.submit(list));
  return unless(conformance::same_bits(download(to), wanted), "a copy left something out");
}

// MPSGraph commits before and behind each run, and goes on with another command buffer.
Status split(device::Device& device) {
  const auto program = lookup(device, 3);
  metal_double::set(Fault::kGraphSplits, true);
  HEDDLE_TRY_ASSIGN(const auto got,
                    Session(device).run(program, std::vector<ir::Tensor>{ir::Tensor::of_i64({1, 4, 2})}));
  return unless(got[0].get(0) == 2 && got[0].get(3) == 9, "a split run is wrong");
}

Status looped(device::Device& device) {
  const Case rnn{"RNN",
                 {conformance::T({70, 2, 3}, -1, 1), conformance::weight({1, 4, 3}, -0.3, 0.3),
                  conformance::weight({1, 4, 4}, -0.3, 0.3)},
                 {{"hidden_size", int64_t{4}}},
                 conformance::kF32,
                 2};
  return conformance::check_case(device, rnn, DType::kF32);
}

Status two_results(device::Device& device) {
  const Case split{"Split", {conformance::T({4, 6})}, {{"axis", int64_t{1}}}, conformance::kF32, 2};
  return conformance::check_case(device, split, DType::kF32);
}

}  // namespace

const std::vector<Row>& field_device_rows() {
  using enum Outcome;
  static const std::vector<Row> kRows = {
      {"blit size", "a copy beyond it", kNewest,
       [](Scale s) { s.field.wrong_blit_bytes = 128, s.limits.blit_bytes = 64; }, copied, right,
       [](MetalOptions& o) { o.limits->blit_bytes = Limits::kNone; }, wrong},
      {"root command buffer", "runs that MPSGraph splits", kNewest, [](Scale) {}, split, right,
       [](MetalOptions& o) { o.defences.watches_root = false; }},
      {"loop scalars", "a long recurrence", kNewest, [](Scale) {}, looped},
      {"order of results", "two results of one shape", kNewest, [](Scale) {}, two_results, right,
       [](MetalOptions& o) { o.defences.orders_results = false; }, wrong},
  };
  return kRows;
}

namespace {

TEST_CASE("a child meets a limit" * doctest::skip()) { meet_row_of_child(); }

TEST_CASE("copies, command buffers, loops and results: right with what the driver does, wrong without") {
  check_rows(field_device_rows);
}

TEST_CASE("a macOS before 14 is refused, and the words name it") {
  for (const bool old : {true, false}) {
    const Machine machine;
    metal_double::become(old ? FieldMac{13, 6, Chip::kM2} : kOldest);
    const auto device = make_metal_device();
    CHECK(device.ok() == !old);
    if (device.ok()) continue;
    CHECK(device.status().code() == Code::unsupported);
    CHECK(device.status().message().find("13.6") != std::string::npos);
  }
}

TEST_CASE("every limit is in both tables, applies to the same Macs, and is met by a test") {
  std::set<std::string> met;
  for (const Rows rows : kFieldRows) {
    for (const Row& row : rows()) {
      CAPTURE(std::string(row.met_by));
      met.insert(row.limit);
      bool applies = false;
      for (const auto& limit : metal_double::field_rows(row.mac))
        applies = applies || (limit.name == row.limit && limit.applies);
      CHECK_MESSAGE(applies, row.limit, " is met on a Mac without it");
    }
  }
  std::set<std::string> named;
  for (const FieldMac& version : {FieldMac{14, 0}, FieldMac{14, 4}, FieldMac{15, 0}, FieldMac{15, 1},
                                  FieldMac{15, 2}, FieldMac{15, 4}, FieldMac{26, 0}}) {
    for (const Chip chip : {Chip::kM1, Chip::kM2, Chip::kM3, Chip::kM4}) {
      const FieldMac mac{version.major, version.minor, chip};
      std::set<std::string> ours, theirs;
      for (const LimitReport& report : limits_of(driver_mac(mac))) {
        named.insert(report.name);
        if (report.applies) ours.insert(report.name);
      }
      for (const auto& row : metal_double::field_rows(mac)) {
        named.insert(std::string(row.name));
        if (row.applies) theirs.insert(std::string(row.name));
      }
      CHECK(ours == theirs);
    }
  }
  for (const std::string& name : named) CHECK_MESSAGE(met.contains(name), name, " is met by no test");
  for (const std::string& name : met) CHECK_MESSAGE(named.contains(name), name, " is in no table");
}

}  // namespace
}  // namespace heddle::metal::test
