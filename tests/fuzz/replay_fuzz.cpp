// Plans for the simulated device that the bytes decide: words of a plan, or any text. A replay is told as
// JSON, the same for equal arguments; what is no plan is refused in words that name one.
#include <string>

#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

void run(Bytes bytes) {
  const uint64_t seed = bytes.byte();
  const std::string plan(bytes.rest());
  std::string told;
  if (refusal_of([&] { told = replay(seed, plan); })) return;
  must(!told.empty() && told.front() == '{', "a replay is told as JSON");
  must(told == replay(seed, plan), "equal arguments tell the same");
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run({data, size});
  return 0;
}
