// lanes.h: the axes that a reduction goes over.
//
//   What       A tensor with the axes to reduce, all from the front. One of rank 0 has a lane of 1 element.
//   Lifetime   As long as the Call.
//   Threads    One thread at a time.
#pragma once

#include "term.h"

namespace heddle::torch_backend {

class Lanes {
 public:
  // No axes: all of them.
  Lanes(const Term& x, const std::vector<int64_t>& axes, bool keep);

  const Term& x() const { return x_; }
  const std::vector<int64_t>& axes() const { return axes_; }
  // A reduction of x, or of another tensor of its shape. With or without the reduced axes, as the entry has
  // it; spread() has them, so that the result broadcasts against x.
  Term reduce(std::string_view op) const { return reduce(op, x_); }
  Term reduce(std::string_view op, const Term& other) const { return reduced(op, other, keep_); }
  Term spread(std::string_view op, const Term& other) const { return reduced(op, other, true); }
  // A result of spread() as the entry's results are.
  Term finished(const Term& spread) const;
  // How many elements a lane has, in x's dtype.
  Term count() const;

 private:
  Term reduced(std::string_view op, const Term& other, bool keep) const;

  Term x_;
  std::vector<int64_t> axes_;
  bool keep_;
};

// Argument `dims` is an int, a list or None; `keep` a bool; -1 where the entry has none.
Lanes lanes_of(const Term& x, int dims, int keep);

// Position of the greatest (least) element of the one lane axis, the first of equals; a NaN is both.
Term position_of_greatest(const Lanes& lanes);
Term position_of_least(const Lanes& lanes);
// The logarithm of the sum of a lane's exponentials.
Term logsumexp(const Lanes& lanes);

}  // namespace heddle::torch_backend
