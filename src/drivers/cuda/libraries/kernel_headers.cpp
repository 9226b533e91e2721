// The headers as they are in the source tree: cmake/HeddleCuda.cmake names their folder, HEDDLE_KERNELS.
#include "drivers/cuda/libraries/kernel_headers.h"

#include <vector>

#include "base/made_once.h"

#define HEDDLE_EMBED(symbol, file)         \
  asm(".pushsection .rodata\n"             \
      ".hidden heddle_text_" #symbol       \
      "\n"                                 \
      ".globl heddle_text_" #symbol        \
      "\n"                                 \
      "heddle_text_" #symbol               \
      ":\n"                                \
      ".incbin \"" HEDDLE_KERNELS "/" file \
      "\"\n"                               \
      ".hidden heddle_end_" #symbol        \
      "\n"                                 \
      ".globl heddle_end_" #symbol         \
      "\n"                                 \
      "heddle_end_" #symbol                \
      ":\n"                                \
      ".byte 0\n"                          \
      ".popsection\n");                    \
  extern "C" __attribute__((visibility("hidden"))) const char heddle_text_##symbol[], heddle_end_##symbol[];

HEDDLE_EMBED(block, "block.h")
HEDDLE_EMBED(compiled_chain, "compiled_chain.h")
HEDDLE_EMBED(element, "element.h")
HEDDLE_EMBED(portable, "portable.h")
HEDDLE_EMBED(quad, "quad.h")
HEDDLE_EMBED(scalar, "scalar.h")
HEDDLE_EMBED(standard, "standard.inc")
HEDDLE_EMBED(walk, "walk.h")
#undef HEDDLE_EMBED

namespace heddle::cuda {

std::span<const KernelHeader> kernel_headers() {
#define HEDDLE_NAMED(name, symbol)                                                                  \
  KernelHeader {                                                                                    \
    name, { heddle_text_##symbol, static_cast<size_t>(heddle_end_##symbol - heddle_text_##symbol) } \
  }
#define HEDDLE_OURS(name) HEDDLE_NAMED("drivers/cuda/kernels/" #name ".h", name)
  static constinit MadeOnce<const std::vector<KernelHeader>> all;
  return all.get([] {
    return std::vector<KernelHeader>{
        HEDDLE_OURS(block),
        HEDDLE_OURS(compiled_chain),
        HEDDLE_OURS(element),
        HEDDLE_OURS(portable),
        HEDDLE_OURS(quad),
        HEDDLE_OURS(scalar),
        HEDDLE_OURS(walk),
        HEDDLE_NAMED("cmath", standard),
        HEDDLE_NAMED("cstdint", standard),
        HEDDLE_NAMED("cstring", standard),
        HEDDLE_NAMED("type_traits", standard),
    };
  });
#undef HEDDLE_OURS
#undef HEDDLE_NAMED
}

}  // namespace heddle::cuda
