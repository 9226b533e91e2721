#include "drivers/sim/fault_plan.h"

#include <doctest/doctest.h>

namespace heddle::sim {

TEST_CASE("each fault's word is read back, once or from a time on, and arms that fault alone") {
  for (const FaultLine& line : kFaultLines) {
    for (const std::string_view nth : {"2", "2+"}) {
      const auto planned = parse_fault(line.word, nth);
      REQUIRE(planned.ok());
      CHECK(planned->fault == line.fault);
      CHECK(to_string(*planned) == text(line.word, " ", nth));
      Faults<Fault> faults;
      planned->arm(faults);
      for (const FaultLine& each : kFaultLines) {
        const bool same = each.fault == line.fault;
        CHECK_FALSE(faults.take(each.fault));
        CHECK(faults.take(each.fault) == same);
        CHECK(faults.take(each.fault) == (same && nth == "2+"));
      }
    }
  }
}

TEST_CASE("a word that is no fault, and a time that is none, are named with what would be right") {
  const Status unknown = parse_fault("fire", "1").status();
  CHECK(unknown.code() == Code::invalid);
  for (const FaultLine& line : kFaultLines) CHECK(unknown.message().find(line.word) != std::string::npos);
  for (const std::string_view nth : {"", "0", "-1", "x", "1x", "+", "1++"}) {
    const Status wrong = parse_fault("compile", nth).status();
    CHECK(wrong.code() == Code::invalid);
    CHECK(wrong.message().find("from 1 on") != std::string::npos);
  }
}

}  // namespace heddle::sim
