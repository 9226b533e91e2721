// nvrtc_api.h: the functions of NVRTC, NVIDIA's compiler for programs that run, found at run time.
//
//   What       NvrtcApi is a table of them, with the types and values of nvrtc.h that they take.
//              tests/cuda_double has a table of its own.
//   Threads    Any: a table never changes once it is made.
//   Errors     unavailable, naming the file and the function that it lacks.
#pragma once

#include <cstddef>

#include "drivers/cuda/libraries/library_search.h"

namespace heddle::cuda {

using NvrtcCode = int;       // nvrtcResult
using NvrtcProgram = void*;  // nvrtcProgram
inline constexpr NvrtcCode kNvrtcSuccess = 0, kNvrtcOutOfMemory = 1, kNvrtcInvalidOption = 5,
                           kNvrtcCompilation = 6;

// name in the table, symbol in the library, arguments
#define HEDDLE_NVRTC_FUNCTIONS(X)                                                                \
  X(version, "nvrtcVersion", (int* major, int* minor))                                           \
  X(create, "nvrtcCreateProgram",                                                                \
    (NvrtcProgram * made, const char* source, const char* name, int headers, const char** texts, \
     const char** names))                                                                        \
  X(destroy, "nvrtcDestroyProgram", (NvrtcProgram * program))                                    \
  X(compile, "nvrtcCompileProgram", (NvrtcProgram program, int options, const char** option))    \
  X(code_bytes, "nvrtcGetCUBINSize", (NvrtcProgram program, size_t* bytes))                      \
  X(code, "nvrtcGetCUBIN", (NvrtcProgram program, char* to))                                     \
  X(log_bytes, "nvrtcGetProgramLogSize", (NvrtcProgram program, size_t* bytes))                  \
  X(log, "nvrtcGetProgramLog", (NvrtcProgram program, char* to))

struct NvrtcApi {
#define HEDDLE_NVRTC_MEMBER(member, symbol, arguments) NvrtcCode(*member) arguments = nullptr;
  HEDDLE_NVRTC_FUNCTIONS(HEDDLE_NVRTC_MEMBER)
#undef HEDDLE_NVRTC_MEMBER
};

inline constexpr const char* kNvrtcNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// Loads what NVRTC opens by a name without a folder, too: it lies beside the library.
Result<NvrtcApi> load_nvrtc(const FoundLibrary& library);

}  // namespace heddle::cuda
