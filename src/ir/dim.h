// dim.h: one extent of a shape: a number, or an expression over named symbols.
//
//   What       A polynomial with integer coefficients over symbols ("batch", "seq"): enough to follow shapes
//              through reshapes, concatenations and products. What a polynomial cannot say (a floor division)
//              becomes a symbol named after its own text, so that equal expressions still compare equal. An
//              expression that outgrows kMaxTerms becomes unknown().
//   Invariant  Canonical: equal() is structural. A static Dim holds no heap memory.
//   Symbols    Stand for numbers of 0 and more; only a text which holds a subtraction is taken as possibly
//              negative.
//   Overflow   Arithmetic saturates at kHuge; checked_elements() refuses such shapes by name.
//   Threads    Immutable values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle::ir {

class Dim {
 public:
  static constexpr int64_t kHuge = INT64_MAX;
  static constexpr size_t kMaxTerms = 64;  // also of the factors of one term
  static constexpr size_t kMaxText = 512;

  Dim(int64_t value = 0) : value_(value) {}  // NOLINT: a number is a Dim
  static Dim symbol(std::string name);
  static Dim unknown();  // a fresh symbol, equal to nothing but its own copies

  bool is_static() const { return terms_ == nullptr; }
  int64_t value() const { return value_; }  // only when is_static()
  bool is(int64_t n) const { return is_static() && value_ == n; }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);

  // a / b when b divides a as polynomials, for every value of the symbols.
  static std::optional<Dim> divide_exact(const Dim& a, const Dim& b);
  // Towards minus infinity; exact when possible, else opaque.
  static Dim floor_div(const Dim& a, const Dim& b);
  static Dim ceil_div(const Dim& a, const Dim& b);
  static Dim min(const Dim& a, const Dim& b);
  static Dim max(const Dim& a, const Dim& b);

  bool derived() const;       // holds a symbol that is no plain name: an opaque or unknown one
  bool non_negative() const;  // for all values of the symbols, as far as that shows
  // False when the two differ for all values of the symbols: such extents can never meet at run time.
  static bool may_equal(const Dim& a, const Dim& b);
  // Of two extents that have to be equal, the one that says more: a number, else a plain symbol.
  static const Dim& clearer(const Dim& a, const Dim& b);

  // The number, with every symbol replaced; nothing when a symbol is not bound (opaque ones never are).
  std::optional<int64_t> evaluate(const std::map<std::string, int64_t>& symbols) const;
  bool mentions(const std::string& symbol) const;
  friend std::string to_string(const Dim& d);  // "128", "batch", "2*batch*seq + 1"

 private:
  struct Term {
    int64_t coefficient;
    std::vector<std::string> factors;  // sorted, with repetition; empty for the constant term
    friend bool operator==(const Term&, const Term&) = default;
  };
  // Leading first (lexicographic order of monomials), no zero coefficient, at least one factor somewhere.
  using Terms = std::vector<Term>;

  static bool leads(const Term& a, const Term& b);
  static Dim from_terms(Terms terms);
  static Dim opaque(std::string text);
  static Dim extreme(const Dim& a, const Dim& b, std::string_view function, std::string_view opposite);
  Terms terms() const;
  bool is_symbol() const {  // one, by itself
    return terms_ != nullptr && terms_->size() == 1 && terms_->front().coefficient == 1 &&
           terms_->front().factors.size() == 1;
  }

  int64_t value_ = 0;
  std::shared_ptr<const Terms> terms_;
};

}  // namespace heddle::ir
