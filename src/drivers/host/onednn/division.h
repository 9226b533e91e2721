// division.h: into how many pieces a step is divided, so that oneDNN's fast kernels compute each of them.
//
//   What       oneDNN computes a shape that none of its kernels takes with a reference implementation, which
//              is up to thousands of times slower. A kernel may take an operation as a whole and refuse a
//              piece of it: because of the piece's size, or because all pieces share one packed weight and
//              pieces of different sizes want different layouts of it. finest_division() passes over such
//              divisions.
//   Invariant  Where a kernel takes the whole operation, no piece runs in the reference.
//   Errors     Those of the callback.
//   Threads    Any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/host/onednn/primitive.h"

namespace heddle::host {

// `implementation`: what impl_info_str() says, "ref:any" or "conv:any+ref:any" for instance.
bool is_reference(std::string_view implementation);

// The Step::path() of a step that runs these primitives in so many pieces.
std::string path_of(const std::vector<Ref<const Primitive>>& primitives, size_t pieces);

// divide(n) -> Result<std::optional<Division>>: the operation in n pieces, or none where it has no such
// pieces. divide(1) always gives one. Division::fast: oneDNN's kernels compute every piece. The result is the
// fast division with the most pieces, at most `most`. If the whole is not fast either, dividing it loses
// nothing, and the result has `most` pieces.
template <class Division, class Divide>
Result<Division> finest_division(int most, Divide divide) {
  HEDDLE_TRY_ASSIGN(std::optional<Division> finest, divide(most));
  if (finest && (finest->fast || most == 1)) return std::move(*finest);
  HEDDLE_TRY_ASSIGN(std::optional<Division> whole, divide(1));
  if (!whole->fast) return std::move(finest ? *finest : *whole);
  for (int n = most - 1; n > 1; --n) {
    HEDDLE_TRY_ASSIGN(std::optional<Division> coarser, divide(n));
    if (coarser && coarser->fast) return std::move(*coarser);
  }
  return std::move(*whole);
}

}  // namespace heddle::host
