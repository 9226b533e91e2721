#include "ir/dim.h"

#include <algorithm>
#include <utility>

#include "base/atomic.h"
#include "base/status.h"

namespace heddle::ir {

namespace {

int64_t saturate(bool overflow, bool negative, int64_t value) {
  if (overflow) return negative ? -Dim::kHuge : Dim::kHuge;
  return std::max(value, -Dim::kHuge);  // INT64_MIN has no negation
}

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  const bool overflow = __builtin_add_overflow(a, b, &sum);
  return saturate(overflow, a < 0, sum);
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &product);
  return saturate(overflow, (a < 0) != (b < 0), product);
}

// b is not zero.
int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == -1) return multiply(a, -1);
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

bool divides(int64_t b, int64_t a) { return b == 1 || b == -1 || (b != 0 && a % b == 0); }

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

bool holds_subtraction(const std::string& symbol) {
  return symbol.starts_with('-') || symbol.find(" - ") != std::string::npos ||
         symbol.find("(-") != std::string::npos || symbol.find(", -") != std::string::npos;
}

bool is_derived(const std::string& symbol) {
  return symbol.starts_with('?') || symbol.find('(') != std::string::npos;
}

// Is `text` the opaque symbol of `function` with `operand` as one of its two operands?
bool is_call_of(const std::string& text, std::string_view function, const std::string& operand) {
  return text.starts_with(heddle::text(function, '(', operand, ", ")) ||
         (text.starts_with(heddle::text(function, '(')) && text.ends_with(heddle::text(", ", operand, ')')));
}

}  // namespace

// The lexicographic order of monomials, with the symbols in alphabetical order: it survives multiplication,
// which divide_exact() needs. The constant term comes last.
bool Dim::leads(const Term& a, const Term& b) {
  const size_t common = std::min(a.factors.size(), b.factors.size());
  for (size_t i = 0; i < common; ++i) {
    if (a.factors[i] != b.factors[i]) return a.factors[i] < b.factors[i];
  }
  return a.factors.size() > b.factors.size();
}

Dim Dim::from_terms(Terms terms) {
  std::sort(terms.begin(), terms.end(), leads);
  Terms merged;
  for (Term& term : terms) {
    if (!merged.empty() && merged.back().factors == term.factors) {
      merged.back().coefficient = add(merged.back().coefficient, term.coefficient);
    } else {
      merged.push_back(std::move(term));
    }
  }
  std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
  if (merged.empty()) return Dim(0);
  if (merged.size() == 1 && merged[0].factors.empty()) return Dim(merged[0].coefficient);
  const auto too_long = [](const Term& term) { return term.factors.size() > kMaxTerms; };
  if (merged.size() > kMaxTerms || std::any_of(merged.begin(), merged.end(), too_long)) return unknown();
  Dim dim;
  dim.terms_ = std::make_shared<const Terms>(std::move(merged));
  return dim;
}

Dim::Terms Dim::terms() const {
  if (terms_ != nullptr) return *terms_;
  if (value_ == 0) return {};
  return {Term{value_, {}}};
}

Dim Dim::symbol(std::string name) { return from_terms({Term{1, {std::move(name)}}}); }

Dim Dim::unknown() {
  static Atomic<uint64_t> count;  // names only: each is taken once, in no particular order
  return symbol(text('?', count.add_relaxed(1) + 1));
}

Dim Dim::opaque(std::string name) { return name.size() > kMaxText ? unknown() : symbol(std::move(name)); }

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return Dim(add(a.value_, b.value_));
  Dim::Terms terms = a.terms();
  for (Dim::Term& term : b.terms()) terms.push_back(std::move(term));
  return Dim::from_terms(std::move(terms));
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return Dim(multiply(a.value_, b.value_));
  Dim::Terms product;
  const Dim::Terms right = b.terms();
  for (const Dim::Term& x : a.terms()) {
    for (const Dim::Term& y : right) {
      Dim::Term term{multiply(x.coefficient, y.coefficient), x.factors};
      term.factors.insert(term.factors.end(), y.factors.begin(), y.factors.end());
      std::sort(term.factors.begin(), term.factors.end());
      product.push_back(std::move(term));
    }
  }
  return Dim::from_terms(std::move(product));
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.is_static() != b.is_static()) return false;
  return a.is_static() ? a.value_ == b.value_ : a.terms_ == b.terms_ || *a.terms_ == *b.terms_;
}

std::optional<Dim> Dim::divide_exact(const Dim& a, const Dim& b) {
  const Terms divisor = b.terms();
  if (divisor.empty()) return std::nullopt;
  Dim quotient(0);
  Dim rest = a;
  // The leading term falls with every round; the bound guards against coefficients that saturate.
  for (size_t round = 0; round < kMaxTerms * kMaxTerms; ++round) {
    const Terms left = rest.terms();
    if (left.empty()) return quotient;
    const Term& lead = left.front();
    const Term& by = divisor.front();
    if (!divides(by.coefficient, lead.coefficient) ||
        !std::includes(lead.factors.begin(), lead.factors.end(), by.factors.begin(), by.factors.end())) {
      return std::nullopt;
    }
    Term term{floor_quotient(lead.coefficient, by.coefficient), {}};
    std::set_difference(lead.factors.begin(), lead.factors.end(), by.factors.begin(), by.factors.end(),
                        std::back_inserter(term.factors));
    const Dim step = from_terms({std::move(term)});
    quotient = quotient + step;
    rest = rest - step * b;
  }
  return std::nullopt;
}

Dim Dim::floor_div(const Dim& a, const Dim& b) {
  if (b.is(0)) return Dim(kHuge);
  if (a.is_static() && b.is_static()) return Dim(floor_quotient(a.value_, b.value_));
  if (std::optional<Dim> exact = divide_exact(a, b)) return *exact;
  if (!b.is_static() || b.value_ < 0) return opaque(text("floor((", a, ")/(", b, "))"));
  // floor((b*q + r)/b) = q + floor(r/b), so each coefficient is brought into [0, b): equal quotients get
  // equal texts.
  Terms whole;
  Terms rest;
  for (const Term& term : a.terms()) {
    const int64_t quotient = floor_quotient(term.coefficient, b.value_);
    const int64_t remainder = term.coefficient - quotient * b.value_;
    whole.push_back(Term{quotient, term.factors});
    rest.push_back(Term{remainder, term.factors});
  }
  const Dim remainder = from_terms(std::move(rest));
  if (remainder.is_static()) return from_terms(std::move(whole)) + floor_div(remainder, b);
  return from_terms(std::move(whole)) + opaque(text("floor((", remainder, ")/", b, ')'));
}

Dim Dim::ceil_div(const Dim& a, const Dim& b) {
  if (b.is(0)) return Dim(kHuge);
  if (!a.is_static() && b.is_static() && b.value_ > 0) return floor_div(a + (b - 1), b);
  return Dim(-1) * floor_div(Dim(-1) * a, b);
}

Dim Dim::extreme(const Dim& a, const Dim& b, std::string_view function, std::string_view opposite) {
  const bool least = function == "min";
  if ((a - b).non_negative()) return least ? b : a;
  if ((b - a).non_negative()) return least ? a : b;
  std::string x = to_string(a);
  std::string y = to_string(b);
  // min(a, max(a, ..)) is a, and min(a, min(a, ..)) is the second operand; so with the two exchanged. A sum
  // may begin and end as a call does.
  if (a.is_symbol() && is_call_of(x, opposite, y)) return b;
  if (b.is_symbol() && is_call_of(y, opposite, x)) return a;
  if (a.is_symbol() && is_call_of(x, function, y)) return a;
  if (b.is_symbol() && is_call_of(y, function, x)) return b;
  if (y < x) std::swap(x, y);
  return opaque(text(function, '(', x, ", ", y, ')'));
}

Dim Dim::min(const Dim& a, const Dim& b) { return extreme(a, b, "min", "max"); }
Dim Dim::max(const Dim& a, const Dim& b) { return extreme(a, b, "max", "min"); }

bool Dim::non_negative() const {
  if (is_static()) return value_ >= 0;
  return std::all_of(terms_->begin(), terms_->end(), [](const Term& term) {
    return term.coefficient > 0 && std::none_of(term.factors.begin(), term.factors.end(), holds_subtraction);
  });
}

bool Dim::may_equal(const Dim& a, const Dim& b) {
  const Dim difference = a - b;
  if (difference.is_static()) return difference.value_ == 0;
  return !(difference - Dim(1)).non_negative() && !(Dim(-1) - difference).non_negative();
}

bool Dim::derived() const {
  if (is_static()) return false;
  return std::any_of(terms_->begin(), terms_->end(), [](const Term& term) {
    return std::any_of(term.factors.begin(), term.factors.end(), is_derived);
  });
}

const Dim& Dim::clearer(const Dim& a, const Dim& b) {
  if (a.is_static() || b.is_static()) return a.is_static() ? a : b;
  return a.derived() && !b.derived() ? b : a;
}

std::optional<int64_t> Dim::evaluate(const std::map<std::string, int64_t>& symbols) const {
  int64_t sum = 0;
  for (const Term& term : terms()) {
    int64_t product = term.coefficient;
    for (const std::string& factor : term.factors) {
      const auto found = symbols.find(factor);
      if (found == symbols.end()) return std::nullopt;
      product = multiply(product, found->second);
    }
    sum = add(sum, product);
  }
  return is_static() ? value_ : sum;
}

bool Dim::mentions(const std::string& symbol) const {
  if (is_static() || symbol.empty()) return false;
  for (const Term& term : *terms_) {
    for (const std::string& factor : term.factors) {
      if (factor == symbol) return true;
      if (!is_derived(factor)) continue;
      for (size_t at = factor.find(symbol); at != std::string::npos; at = factor.find(symbol, at + 1)) {
        const size_t end = at + symbol.size();
        const bool starts = at == 0 || !is_word(factor[at - 1]);
        if (starts && (end == factor.size() || !is_word(factor[end]))) return true;
      }
    }
  }
  return false;
}

std::string to_string(const Dim& d) {
  if (d.is_static()) return text(d.value_);
  std::string out;
  for (const Dim::Term& term : *d.terms_) {
    const int64_t magnitude = term.coefficient < 0 ? multiply(term.coefficient, -1) : term.coefficient;
    if (out.empty()) {
      if (term.coefficient < 0) out += '-';
    } else {
      out += term.coefficient < 0 ? " - " : " + ";
    }
    bool first = true;
    if (magnitude != 1 || term.factors.empty()) {
      out += text(magnitude);
      first = false;
    }
    for (const std::string& factor : term.factors) {
      if (!first) out += '*';
      out += factor;
      first = false;
    }
  }
  return out;
}

}  // namespace heddle::ir
