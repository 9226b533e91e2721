#include "base/status.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

struct Shape {
  int rank;
};
std::string to_string(const Shape& shape) { return text("rank-", shape.rank); }

Status positive(int x) {
  if (x <= 0) return Status::invalid("x is ", x, "; it must be positive");
  return {};
}
Result<int> half(int x) {
  HEDDLE_TRY(positive(x));
  if (x % 2 != 0) return Status::unsupported("x is odd");
  return x / 2;
}
Result<std::string> quarter(int x) {
  HEDDLE_TRY_ASSIGN(const int once, half(x));
  HEDDLE_TRY_ASSIGN(const int twice, half(once));
  return std::to_string(twice);
}
Status try_a_result(int x) {
  HEDDLE_TRY(half(x));
  return {};
}

TEST_CASE("a status is one pointer wide and ok by default") {
  CHECK(sizeof(Status) == sizeof(void*));
  const Status status;
  CHECK(status.ok());
  CHECK(status.code() == Code::ok);
  CHECK(status.message().empty());
  CHECK(status.place().empty());
  CHECK(to_string(status) == "ok");
  CHECK(status.with_context("while testing").ok());
}

TEST_CASE("each maker gives its code, the joined message and the place of the call") {
  struct Row {
    Status status;
    Code code;
    const char* shown;
  };
  const int line = __LINE__ + 2;
  const std::vector<Row> rows = {
      {Status::invalid("a ", 1), Code::invalid, "invalid: a 1"},
      {Status::unsupported(std::string("b")), Code::unsupported, "unsupported: b"},
      {Status::exhausted(std::string_view("c ")), Code::exhausted, "exhausted: c "},
      {Status::unavailable("d", true), Code::unavailable, "unavailable: dtrue"},
      {Status::deadline("e", 'x'), Code::deadline, "deadline: ex"},
      {Status::cancelled("f ", 0.5), Code::cancelled, "cancelled: f 0.5"},
      {Status::device_lost("g ", Shape{3}), Code::device_lost, "device_lost: g rank-3"},
      {Status::internal("h ", Code::deadline), Code::internal, "internal: h deadline"},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(!rows[i].status.ok());
    CHECK(rows[i].status.code() == rows[i].code);
    CHECK(to_string(rows[i].status) == rows[i].shown);
    CHECK(rows[i].status.place() == text("status_test.cpp:", line + static_cast<int>(i)));
  }
}

TEST_CASE("text joins every kind of piece, numbers in full") {
  const char* none = nullptr;
  CHECK(text("n=", int8_t{-5}, ' ', uint8_t{200}, " ", INT64_MIN, " ", UINT64_MAX) ==
        "n=-5 200 -9223372036854775808 18446744073709551615");
  CHECK(text(0.1, " ", 0.1f, " ", false, " ", none) == "0.1 0.1 false (null)");
  CHECK(text() == "");
}

TEST_CASE("context goes before the message and keeps code and place") {
  const Status inner = Status::unsupported("Loop");
  const Status outer = inner.with_context("node 'n7'");
  CHECK(to_string(outer) == "unsupported: node 'n7': Loop");
  CHECK(outer.place() == inner.place());
  CHECK(inner.message() == "Loop");
}

TEST_CASE("a result holds its value or its failure") {
  CHECK(*half(8) == 4);
  CHECK(half(7).status().code() == Code::unsupported);
  CHECK(half(-1).status().message() == "x is -1; it must be positive");
  const Result<int> from_ok = Status();
  CHECK(from_ok.status().code() == Code::internal);
  Result<std::unique_ptr<int>> moved = std::make_unique<int>(3);
  CHECK(*std::move(moved).value() == 3);
  const Result<Ref<const int>> widened = std::make_shared<int>(4);
  CHECK(**widened == 4);
}

TEST_CASE("the try macros pass values on and leave with the first failure") {
  CHECK(*quarter(12) == "3");
  CHECK(quarter(6).status().message() == "x is odd");
  CHECK(quarter(0).status().code() == Code::invalid);
  CHECK(try_a_result(2).ok());
  CHECK(try_a_result(3).code() == Code::unsupported);
}

TEST_CASE("copies of one failure are read and dropped by many threads") {
  const Status shared = Status::internal("one message for all");
  Atomic<int> equal;
  run_together(8, [&](int) {
    for (int i = 0; i < 1000; ++i) {
      Status mine = shared;
      const Status other = mine;
      mine = Status();
      equal.add_relaxed(other.message() == "one message for all" && mine.ok() ? 1 : 0);
    }
  });
  CHECK(equal.load_relaxed() == 8 * 1000);
}

TEST_CASE("whichever thread drops the last copy of a failure, the others have read it by then") {
  constexpr int kThreads = 4, kRounds = 500;
  Atomic<int> equal;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Status> copies(kThreads, Status::internal("one message for all"));
    run_together(kThreads, [&](int thread) {
      Status& mine = copies[static_cast<size_t>(thread)];
      equal.add_relaxed(mine.message() == "one message for all" ? 1 : 0);
      mine = Status();
    });
  }
  CHECK(equal.load_relaxed() == kThreads * kRounds);
}

}  // namespace
}  // namespace heddle
