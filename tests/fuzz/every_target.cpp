// All targets in one program: it is the one whose name it is started by. Most of a target's program is the
// library, so that one is sent to another machine in the place of all.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// By CMake: TARGET(onnx) TARGET(tensors), and so on.
#define TARGET(name) extern "C" int name##_fuzz(const uint8_t* data, size_t size);
HEDDLE_FUZZ_TARGETS
#undef TARGET

namespace {

using Target = int (*)(const uint8_t*, size_t);
Target chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** words) {
  std::string_view name = (*words)[0];
  name = name.substr(name.rfind('/') + 1);
#define TARGET(short_name) \
  if (name == #short_name) chosen = short_name##_fuzz;
  HEDDLE_FUZZ_TARGETS
#undef TARGET
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "ERROR: there is no target of this program's name\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return chosen(data, size); }
