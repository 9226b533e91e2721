#include "drivers/host/onednn/omp_scope.h"

#if !defined(HEDDLE_NO_OPENMP)
// Declared here, not by omp.h: that header belongs to -fopenmp, and clang's would name another library than
// oneDNN's libgomp.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int count);
#else
// This oneDNN has no OpenMP: it computes on the caller's thread, and there is no setting to keep.
static int omp_get_max_threads() { return 1; }
static void omp_set_num_threads(int) {}
#endif

namespace heddle::host {

OmpScope::OmpScope() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OmpScope::~OmpScope() {
  if (before_ != 1) omp_set_num_threads(before_);
}

int omp_threads_here() { return omp_get_max_threads(); }

}  // namespace heddle::host
