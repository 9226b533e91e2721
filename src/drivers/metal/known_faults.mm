#include "drivers/metal/known_faults.h"

namespace heddle::metal {
namespace {

struct Row {
  const char* fault;
  const char* defence;
  int64_t mended_in = INT64_MAX;  // macOS, major; unknown so far: assumed to be there
};

constexpr Row kRows[] = {
    {"an encoder that one thread ends while another uses it crashes in the AGX driver (seen: 15.7)",
     "encoders are locals of the function that submits; for other libraries of the process: heddle guard"},
    {"MPSNDArrayMatrixMultiplication aborts when 3 threads encode it (seen: 15.x)",
     "matrix products are MPSGraph's"},
    {"the Metal layer-norm kernel gives wrong values or aborts at 4 threads (seen: 15.x)",
     "layer normalisation is composed in MPSGraph"},
    {"attention on a packed projection, read by strides, is wrong at 8 threads (seen: 15.x)",
     "query, key and value are taken apart first"},
    {"two threads that encode one MPSGraphExecutable (no SDK before 26 says that they may)",
     "one thread at a time encodes an executable; different ones are encoded side by side", 26},
    {"a strided copy of MPS may read a source that is unfinished or recycled (seen: 15.x)",
     "strided copies are kernels of ours, whose sources the submission holds and Metal tracks"},
    {"completion handlers may run after waitUntilCompleted has returned (all versions)",
     "only a command buffer's own handler ends its submission, in the order of values"},
    {"commandBuffer blocks its caller while 64 are not completed (all versions)",
     "at most 48 a queue, and a bounded wait outside Metal"},
};

}  // namespace

std::vector<device::Fact> known_faults(int64_t macos_major) {
  std::vector<device::Fact> faults;
  for (const Row& row : kRows) {
    if (macos_major < row.mended_in) faults.push_back({row.fault, row.defence});
  }
  return faults;
}

}  // namespace heddle::metal
