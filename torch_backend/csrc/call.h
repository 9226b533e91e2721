// call.h: what the entry of an operator sees: the arguments of one call of an ATen operator, and the graph
// that it adds nodes to. No torch header here or in any entry.
//
//   What       An entry gets a Call, reads its arguments by their position in the operator's schema, adds
//              nodes (operators of heddle.h's GraphBuilder: ONNX's newest opset) and returns its results.
//              The same entry serves an eager call, where it makes a graph of one operator, and a traced
//              graph, where it adds to what is there.
//   Checked    PyTorch's own shape functions have seen the call before: shapes fit, dtypes are allowed, and
//   before     result_dtype() and result_shape() are what they say. What an entry does not do (a mode, a
//              dtype) it refuses with unsupported().
//   After      A result of another dtype than result_dtype() is cast to it. Its shape has to be right.
//   Numbers    Of an eager call, arguments of schema type `Scalar` change from call to call without a new
//              graph: they are inputs. Known are only 0 and 1 (is()), unless the entry asks for
//              Numbers::known. All other arguments (int, float, bool, lists, dtypes) are known.
//   Threads    One thread at a time.
#pragma once

#include <heddle/heddle.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::torch_backend {

using Value = GraphBuilder::Value;

// A size or an index: known, or, in a traced graph with free dimensions, the i64 value (rank 0) of a node.
struct Int {
  Int(int64_t n) : known(n) {}  // NOLINT: a number is an Int
  explicit Int(Value v) : value(v) {}
  std::optional<int64_t> known;
  Value value = GraphBuilder::absent();
};

using Extents = std::vector<std::optional<int64_t>>;  // nothing: not known before the call

struct Type {
  DType dtype;
  Extents shape;
};

struct Number {  // an argument of schema type Scalar
  DType kind;    // f64, i64 or boolean: what Python's number was
  std::optional<double> known;
  Value value = GraphBuilder::absent();  // rank 0, of dtype `kind`; absent where it is an eager call's input
};

struct TensorArgument {
  Value value;
  bool wrapped = false;  // a Python number that PyTorch made a tensor of: weak in promotion
};

using Argument = std::variant<std::monostate,  // None
                              TensorArgument, std::vector<TensorArgument>, Int, std::vector<Int>, double,
                              std::vector<double>, bool, std::vector<bool>, std::string, DType, Number>;

struct Results : std::vector<Value> {
  Results(Value value) : std::vector<Value>{value} {}  // NOLINT: most operators have one
  Results(std::initializer_list<Value> values) : std::vector<Value>(values) {}
  explicit Results(std::vector<Value> values) : std::vector<Value>(std::move(values)) {}
};

class Call {
 public:
  // Where an eager call's numbers come from: makes a graph input of rank 0, of any dtype but f16 and bf16.
  struct NumberInputs {
    virtual ~NumberInputs() = default;
    virtual Value input(int argument, DType dtype) = 0;
  };

  // `real`: what Python's floats are in promotion, torch.get_default_dtype().
  Call(std::string_view op, GraphBuilder& graph, std::vector<Argument> arguments, std::vector<Type> results,
       DType real, NumberInputs* numbers = nullptr, bool has_numbers = false)
      : op_(op),
        graph_(graph),
        arguments_(std::move(arguments)),
        results_(std::move(results)),
        real_(real),
        numbers_(numbers),
        has_numbers_(has_numbers) {}

  // ---- arguments, by position; of another type than the schema's: internal
  bool has(int argument) const;      // not None
  Value tensor(int argument) const;  // absent() for None
  std::vector<Value> tensors(int argument) const;
  int64_t integer(int argument) const;  // known, else unsupported
  Int size(int argument) const;         // may be a node's value
  double real(int argument) const;      // of schema type float
  bool flag(int argument) const;
  std::string_view text(int argument) const;
  std::optional<DType> dtype_argument(int argument) const;
  std::vector<Int> ints(int argument) const;
  std::vector<int64_t> integers(int argument) const;  // all known, else unsupported; a lone int counts as one
  std::vector<double> reals(int argument) const;
  std::vector<bool> flags(int argument) const;
  Value scalar(int argument, DType dtype);  // of schema type Scalar, as a rank-0 value of any dtype
  bool is(int argument, double n) const;    // the Scalar is known to be n
  bool is_known(int argument) const;        // the Scalar is; an eager call's 0 and 1, a graph's number
  bool is_computed(int argument) const;     // the Scalar is what a node of a traced graph gives
  // The same, and it may follow from a number among the graph's inputs, which refusing it fixes.
  bool is_fixable(int argument) const { return has_numbers_ && is_computed(argument); }
  double known(int argument) const;                      // the Scalar's value, else unsupported
  bool is_eager() const { return numbers_ != nullptr; }  // and may have a graph for each extent

  // ---- types
  DType dtype(Value value) const;
  Extents shape(Value value) const;
  int rank(Value value) const;
  int64_t extent(Value value, int axis) const;  // known, else unsupported; axis may count from the end
  Int size_of(Value value, int axis);           // known, or read off the tensor at run time
  DType result_dtype(int result = 0) const;
  const Extents& result_shape(int result = 0) const;
  // What PyTorch promotes these arguments (tensors and Scalars; None is skipped) to.
  DType common(std::initializer_list<int> arguments) const;

  // ---- nodes
  Value node(std::string_view op, const std::vector<Value>& inputs, const AttributeList& attributes = {});
  std::vector<Value> nodes(std::string_view op, const std::vector<Value>& inputs, size_t outputs,
                           const AttributeList& attributes = {});
  Value cast(Value value, DType dtype);           // itself when it has it
  Value literal(double value, DType dtype);       // rank 0; any dtype
  Value vector(std::span<const int64_t> values);  // i64[n]
  Value vector(std::initializer_list<int64_t> values) {
    return vector(std::span(values.begin(), values.size()));
  }
  Value vector(const std::vector<Int>& values);  // i64[n], concatenated at run time where one is not known
  Value rank0(const Int& value);                 // i64[]
  Value constant(const Tensor& tensor);

  // ---- common steps
  Value reshape(Value value, const std::vector<Int>& shape);
  Value transpose(Value value, const std::vector<int64_t>& order);
  Value swap_axes(Value value, int a, int b);  // may count from the end
  Value unsqueeze(Value value, const std::vector<int64_t>& axes);
  Value squeeze(Value value, const std::vector<int64_t>& axes);
  Value expand(Value value, const std::vector<Int>& shape);  // by broadcasting
  Value slice(Value value, int axis, Int begin, Int end, int64_t step = 1);
  Value result_shape_vector(int result = 0);  // i64[rank] of a result whose extents are all known

  [[noreturn]] void unsupported(const std::string& what) const;  // names the operator
  std::string_view op() const { return op_; }

 private:
  template <class T>
  const T& as(int argument) const;

  std::string op_;
  GraphBuilder& graph_;
  std::vector<Argument> arguments_;
  std::vector<Type> results_;
  DType real_;
  NumberInputs* numbers_;
  bool has_numbers_;
};

// Arithmetic is done in this: f32 for f16 and bf16, as PyTorch's CPU kernels do; itself otherwise.
constexpr DType wide(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }
constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f64;
}
constexpr int from_front(int axis, int rank) { return axis < 0 ? axis + rank : axis; }

}  // namespace heddle::torch_backend
