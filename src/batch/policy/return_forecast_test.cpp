#include "batch/policy/return_forecast.h"

#include <doctest/doctest.h>

namespace heddle::batch {
namespace {

void note(ReturnForecast& forecast, int times, bool joined) {
  for (int i = 0; i < times; ++i) forecast.note(joined);
}

TEST_CASE("callers are expected back while at least half of the batches that waited were joined") {
  ReturnForecast forecast;
  CHECK(forecast.expect());  // nothing is known yet
  note(forecast, 5, true);
  note(forecast, 5, false);
  CHECK(forecast.expect());
  note(forecast, 1, false);
  CHECK_FALSE(forecast.expect());
  note(forecast, 1, true);
  CHECK(forecast.expect());
}

TEST_CASE("callers that are not expected are waited for once in thirty-two times") {
  ReturnForecast forecast;
  note(forecast, 1, false);
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < 32; ++i) CHECK_FALSE(forecast.expect());
    CHECK(forecast.expect());
  }
}

TEST_CASE("of sixty-four batches the older ones fade: as many as half of them outvote all before") {
  ReturnForecast forecast;
  note(forecast, 63, true);
  note(forecast, 1, false);  // 31.5 to 0.5
  note(forecast, 31, false);
  CHECK(forecast.expect());  // 31.5 to 31.5
  note(forecast, 1, false);
  CHECK_FALSE(forecast.expect());

  ReturnForecast other;
  note(other, 1, true);
  note(other, 63, false);  // 0.5 to 31.5
  note(other, 30, true);
  CHECK_FALSE(other.expect());
  note(other, 1, true);
  CHECK(other.expect());  // 31.5 to 31.5
}

}  // namespace
}  // namespace heddle::batch
