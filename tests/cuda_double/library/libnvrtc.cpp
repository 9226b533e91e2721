// The double's NVRTC as libnvrtc.so.13. What it compiles with is the double's in libcuda.so.1.
#include "tests/cuda_double/library/in_its_place.h"

using heddle::cuda::NvrtcCode;
using heddle::cuda::NvrtcProgram;

#define HEDDLE_FORWARD(member, symbol, parameters, arguments)                     \
  extern "C" __attribute__((visibility("default"))) NvrtcCode symbol parameters { \
    return heddle_double_nvrtc()->member arguments;                               \
  }

HEDDLE_FORWARD(version, nvrtcVersion, (int* major, int* minor), (major, minor))
HEDDLE_FORWARD(create, nvrtcCreateProgram,
               (NvrtcProgram * made, const char* source, const char* name, int headers, const char** texts,
                const char** names),
               (made, source, name, headers, texts, names))
HEDDLE_FORWARD(destroy, nvrtcDestroyProgram, (NvrtcProgram * program), (program))
HEDDLE_FORWARD(compile, nvrtcCompileProgram, (NvrtcProgram program, int options, const char** option),
               (program, options, option))
HEDDLE_FORWARD(code_bytes, nvrtcGetCUBINSize, (NvrtcProgram program, size_t* bytes), (program, bytes))
HEDDLE_FORWARD(code, nvrtcGetCUBIN, (NvrtcProgram program, char* to), (program, to))
HEDDLE_FORWARD(log_bytes, nvrtcGetProgramLogSize, (NvrtcProgram program, size_t* bytes), (program, bytes))
HEDDLE_FORWARD(log, nvrtcGetProgramLog, (NvrtcProgram program, char* to), (program, to))
