// A graph that the bytes decide: every way that computes it gives the references' results.
#include "fuzz_fixture.h"
#include "tests/differential/agreement_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::differential;
  static Agreement agreement(false);
  BytesChoices choices({data, size});
  const RandomGraph drawn = random_graph(choices);
  const std::string differs = agreement.check(drawn, choices);
  if (!differs.empty()) heddle::fuzz::must(false, differs + "\n" + described(drawn));
  return 0;
}
