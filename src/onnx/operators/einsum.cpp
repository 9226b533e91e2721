// Einsum: diagonals, sums, and one matrix product (or broadcast product) for each further operand.
#include "onnx/operators/einsum.h"

#include <algorithm>
#include <string>
#include <vector>

#include "onnx/operators/parts.h"

namespace heddle::onnx {
namespace {

using ir::ValueId;

// A letter names an axis. What an ellipsis stands for is named by numbers from kEllipsis on, counted from the
// right.
using Letters = std::vector<int>;
constexpr int kEllipsis = 256;

bool holds(const Letters& letters, int letter) {
  return std::find(letters.begin(), letters.end(), letter) != letters.end();
}

struct Equation {
  std::vector<Letters> inputs;
  Letters output;
};

struct Term {
  ValueId value;
  Letters letters;  // one an axis
};

Result<Letters> letters_of(Call& call, const std::string& term, size_t ellipsis) {
  Letters letters;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (term.compare(i, 3, "...") == 0) {
      for (size_t k = ellipsis; k-- > 0;) letters.push_back(kEllipsis + static_cast<int>(k));
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      letters.push_back(c);
    } else {
      return call.invalid("the equation holds '", std::string(1, c),
                          "'; it has to be letters, commas, '...' and '->'");
    }
  }
  return letters;
}

// Without an arrow: the ellipsis, then the letters that occur once, in order.
Letters implied_output(const std::vector<Letters>& inputs, size_t ellipsis) {
  std::vector<int> all;
  for (const Letters& letters : inputs) all.insert(all.end(), letters.begin(), letters.end());
  Letters output;
  for (size_t k = ellipsis; k-- > 0;) output.push_back(kEllipsis + static_cast<int>(k));
  std::sort(all.begin(), all.end());
  for (int letter : all) {
    if (letter < kEllipsis && std::count(all.begin(), all.end(), letter) == 1) output.push_back(letter);
  }
  return output;
}

Result<Equation> parse(Call& call, const std::string& text) {
  const size_t arrow = text.find("->");
  std::vector<std::string> terms = {""};
  for (char c : text.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  if (terms.size() != call.inputs().size()) {
    return call.invalid("the equation '", text, "' has ", terms.size(), " operands; the node has ",
                        call.inputs().size());
  }
  Equation equation;
  size_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(i));
    HEDDLE_TRY_ASSIGN(const Letters named, letters_of(call, terms[i], 0));
    const bool open = terms[i].find("...") != std::string::npos;
    if (named.size() > type.rank() || (!open && named.size() != type.rank())) {
      return call.invalid("the equation names ", named.size(), " axes of input ", i, ", which is ", type);
    }
    const size_t rest = open ? type.rank() - named.size() : 0;
    HEDDLE_TRY_ASSIGN(Letters letters, letters_of(call, terms[i], rest));
    widest = std::max(widest, rest);
    equation.inputs.push_back(std::move(letters));
  }
  if (arrow == std::string::npos) {
    equation.output = implied_output(equation.inputs, widest);
    return equation;
  }
  HEDDLE_TRY_ASSIGN(equation.output, letters_of(call, text.substr(arrow + 2), widest));
  for (int letter : equation.output) {
    const bool known = std::any_of(equation.inputs.begin(), equation.inputs.end(),
                                   [&](const Letters& letters) { return holds(letters, letter); });
    const bool twice = std::count(equation.output.begin(), equation.output.end(), letter) > 1;
    if (!known || twice) {
      return call.invalid("the output of the equation '", text,
                          "' has to name axes of the operands, each once");
    }
  }
  return equation;
}

class Contraction {
 public:
  explicit Contraction(Parts& parts) : parts_(parts) {}

  // A letter that stands twice: only the elements where both indices are equal.
  void take_diagonals(Term& term) {
    for (size_t first = 0; first < term.letters.size(); ++first) {
      for (size_t second = term.letters.size() - 1; second > first; --second) {
        if (term.letters[first] == term.letters[second]) take_diagonal(term, first, second);
      }
    }
  }

  // What no later step needs.
  void sum_out(Term& term, const Letters& needed) {
    std::vector<int64_t> axes;
    Letters left;
    for (size_t i = 0; i < term.letters.size(); ++i) {
      if (holds(needed, term.letters[i])) {
        left.push_back(term.letters[i]);
      } else {
        axes.push_back(static_cast<int64_t>(i));
      }
    }
    if (axes.empty()) return;
    term = {parts_.node("ReduceSum", {term.value, parts_.ints(axes)}, {{"keepdims", int64_t{0}}}), left};
  }

  Term join(const Term& a, const Term& b, const Letters& needed) {
    Letters both, summed, left, right;
    for (int letter : a.letters) {
      if (!holds(b.letters, letter)) {
        left.push_back(letter);
      } else {
        (holds(needed, letter) ? both : summed).push_back(letter);
      }
    }
    for (int letter : b.letters) {
      if (!holds(a.letters, letter)) right.push_back(letter);
    }
    return summed.empty() ? multiply(a, b, both, left, right) : contract(a, b, both, summed, left, right);
  }

  Term arranged(const Term& term, const Letters& order) {
    std::vector<int64_t> perm;
    for (int letter : order) {
      perm.push_back(std::find(term.letters.begin(), term.letters.end(), letter) - term.letters.begin());
    }
    return {parts_.transpose(term.value, perm), order};
  }

 private:
  static Letters concat(std::initializer_list<Letters> pieces) {
    Letters all;
    for (const Letters& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
    return all;
  }

  // Multiplied with a mask that is 1 on the diagonal, and summed over one of its axes.
  void take_diagonal(Term& term, size_t first, size_t second) {
    const ir::DType dtype = parts_.type(term.value).dtype;
    const size_t rank = term.letters.size();
    const auto along = [&](size_t axis) {
      std::vector<int64_t> others;
      for (size_t i = axis + 1; i < rank; ++i) others.push_back(static_cast<int64_t>(i - axis));
      return parts_.unsqueeze(parts_.range(parts_.extent(term.value, axis), ir::DType::kI64), others);
    };
    const ValueId diagonal = parts_.pair("Equal", along(first), along(second));
    const ValueId kept = parts_.node("Where", {diagonal, term.value, parts_.number(dtype, 0)});
    term.value = parts_.node("ReduceSum", {kept, parts_.ints({static_cast<int64_t>(second)})},
                             {{"keepdims", int64_t{0}}});
    term.letters.erase(term.letters.begin() + static_cast<int64_t>(second));
  }

  Term multiply(const Term& a, const Term& b, const Letters& both, const Letters& left,
                const Letters& right) {
    const Letters order = concat({both, left, right});
    const auto spread = [&](const Term& term) {
      Letters own;
      std::vector<int64_t> missing;
      for (size_t i = 0; i < order.size(); ++i) {
        if (holds(term.letters, order[i])) {
          own.push_back(order[i]);
        } else {
          missing.push_back(static_cast<int64_t>(i));
        }
      }
      return parts_.unsqueeze(arranged(term, own).value, missing);
    };
    return {parts_.pair("Mul", spread(a), spread(b)), order};
  }

  // [both.., left, summed] x [both.., summed, right]. Groups of several axes become one and come back after;
  // without axes in `both` those of `left` may stay apart.
  Term contract(const Term& a, const Term& b, const Letters& both, const Letters& summed, const Letters& left,
                const Letters& right) {
    const bool flat = !both.empty() || left.empty();
    const Term x = arranged(a, concat({both, left, summed}));
    const Term y = arranged(b, concat({both, summed, right}));
    const size_t lead = both.size();
    const size_t mid = lead + left.size();
    ValueId p = merged(x.value, mid, x.letters.size());
    if (flat) p = merged(p, lead, mid);
    ValueId q = merged(y.value, lead + summed.size(), y.letters.size());
    q = merged(q, lead, lead + summed.size());
    ValueId product = parts_.pair("MatMul", p, q);
    const Letters order = concat({both, left, right});
    if ((left.size() == 1 || !flat) && right.size() == 1) return {product, order};
    std::vector<ValueId> shape;
    if (lead > 0) shape.push_back(parts_.extents(product, 0, lead));
    if (!left.empty()) shape.push_back(parts_.extents(x.value, lead, mid));
    if (!right.empty()) shape.push_back(parts_.extents(y.value, lead + summed.size(), y.letters.size()));
    product = shape.empty()
                  ? parts_.scalar_of(product)
                  : parts_.node("Reshape", {product, parts_.join(shape)}, {{"allowzero", int64_t{1}}});
    return {product, order};
  }

  // The axes [begin, end) of x as one; an axis of 1 when there are none.
  ValueId merged(ValueId x, size_t begin, size_t end) {
    if (end == begin + 1) return x;
    if (end == begin) return parts_.unsqueeze(x, {static_cast<int64_t>(begin)});
    if (parts_.status().ok() == false) return x;
    const size_t rank = parts_.type(x).rank();
    std::vector<ValueId> shape;
    if (begin > 0) shape.push_back(parts_.extents(x, 0, begin));
    shape.push_back(parts_.node("ReduceProd", {parts_.extents(x, begin, end)}));
    if (end < rank) shape.push_back(parts_.extents(x, end, rank));
    return parts_.node("Reshape", {x, parts_.join(shape)}, {{"allowzero", int64_t{1}}});
  }

  Parts& parts_;
};

}  // namespace

Status convert_einsum(Call& call) {
  HEDDLE_TRY_ASSIGN(const std::string text, call.take_str("equation", ""));
  HEDDLE_TRY_ASSIGN(const Equation equation, parse(call, text));
  Parts parts(call);
  Contraction contraction(parts);
  std::vector<Term> terms;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    terms.push_back({call.input(i), equation.inputs[i]});
    contraction.take_diagonals(terms.back());
  }
  Term result = terms[0];
  for (size_t next = 0; next < terms.size(); ++next) {
    Letters needed = equation.output;
    for (size_t later = next + 1; later < terms.size(); ++later) {
      needed.insert(needed.end(), terms[later].letters.begin(), terms[later].letters.end());
    }
    if (next > 0) {
      Letters wanted = needed;
      wanted.insert(wanted.end(), result.letters.begin(), result.letters.end());
      contraction.sum_out(terms[next], wanted);
      result = contraction.join(result, terms[next], needed);
    }
    contraction.sum_out(result, needed);
  }
  return parts.emit(parts.node("Identity", {contraction.arranged(result, equation.output).value}));
}

}  // namespace heddle::onnx
