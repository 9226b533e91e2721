// Question  How near are the host's own kernels to the cost of moving their bytes?
// Peer      memcpy of as many bytes as the kernel reads and writes, in the same run.
// Read as   ns per element (of the output; of the input for reductions), and the ratio to memcpy: 1 is the
//           memory's own speed. Operands of 1 MiB stay in the second-level cache, those of 32 MiB do not.
//           One thread, processor time.
// Checked   Each kernel's whole output against the reference once, and samples of it after every round.
#include <cmath>
#include <cstring>
#include <memory>

#include "bench/base/rounds.h"
#include "drivers/host/lowering.h"
#include "ir/builder.h"
#include "tests/close_fixture.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 9;

void require(bool right, const std::string& what) {
  if (right) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// One node with its operands, ready to run.
class Prepared {
 public:
  Prepared(const std::string& op, const std::vector<ir::Extents>& shapes, const ir::Attributes& attributes)
      : team_(1) {
    ir::Builder builder;
    std::vector<ir::ValueId> ids;
    for (const ir::Extents& shape : shapes) {
      ir::Tensor x = ir::Tensor::zeros(ir::DType::kF32, shape);
      for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(0.37 * static_cast<double>(i % 9973)));
      ids.push_back(builder.input(text("x", ids.size()), x.type()));
      inputs_.push_back(std::move(x));
    }
    auto id = builder.node(op, ids, attributes);
    require(id.ok(), to_string(id.status()));
    builder.output(*id);
    graph_ = *builder.take();
    want_ = ir::evaluate(graph_, inputs_)->front();
    made_ = ir::Tensor::zeros(ir::DType::kF32, want_.extents());
    lower(op);
    run();
    for (int64_t i = 0; i < want_.elements(); ++i) {
      const double a = made_.get(i), b = want_.get(i);
      require(test::is_close(a, b, {1e-5, 1e-6}), text(op, ": element ", i, " is ", a, " instead of ", b));
    }
    std::memcpy(want_.mutable_data(), made_.data(), static_cast<size_t>(made_.bytes()));
  }

  void run() {
    host::Team::Caller caller(team_);
    const host::RunContext context{arena_, addresses_.data(), &output_, caller, nullptr};
    const Status status = step_->run(context);
    require(status.ok(), to_string(status));
  }
  int64_t elements() const { return made_.elements(); }
  int64_t bytes_moved() const {
    int64_t bytes = made_.bytes();
    for (const ir::Tensor& x : inputs_) bytes += x.bytes();
    return bytes;
  }
  // Some of the elements, all over the output: looking at all would cost as much as making them.
  bool right() const {
    for (int64_t i = 0; i < made_.elements(); i += 4099) {
      if (std::memcmp(made_.as<float>() + i, want_.as<float>() + i, sizeof(float)) != 0) return false;
    }
    return true;
  }

 private:
  static host::Operand operand(const ir::Tensor& tensor, host::Operand::Location location, uint64_t index) {
    host::Operand o;
    o.location = location;
    o.dtype = tensor.dtype();
    o.extents = tensor.extents();
    o.offset = index;
    return o;
  }

  void lower(const std::string& op) {
    // The kernels keep no packed weights, so nothing looks into this store.
    alignas(64) static std::byte no_store[64];
    host::Lowering lowering{graph_, graph_.nodes[0], {}, {}, reinterpret_cast<host::WeightStore&>(no_store),
                            1};
    for (const ir::Tensor& x : inputs_) {
      lowering.inputs.push_back(operand(x, host::Operand::Location::kInput, addresses_.size()));
      addresses_.push_back(static_cast<const std::byte*>(x.data()));
    }
    lowering.outputs.push_back(operand(made_, host::Operand::Location::kOutput, 0));
    output_ = static_cast<std::byte*>(made_.mutable_data());
    auto step = host::find_lowering(op)(lowering);
    require(step.ok(), to_string(step.status()));
    step_ = std::move(*step);
    step_->set_scratch(0);
    memory_.resize(step_->scratch_bytes() + 64);
    arena_ = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64);
  }

  host::Team team_;
  ir::Graph graph_;
  std::vector<ir::Tensor> inputs_;
  ir::Tensor want_;
  ir::Tensor made_;
  std::unique_ptr<host::Step> step_;
  std::vector<const std::byte*> addresses_;
  std::byte* output_ = nullptr;
  std::vector<std::byte> memory_;
  std::byte* arena_ = nullptr;
};

struct Kernel {
  const char* name;
  const char* op;
  std::vector<ir::Extents> shapes;
  ir::Attributes attributes;
};

// rows * 256 elements.
std::vector<Kernel> kernels(int64_t rows) {
  return {
      {"add", "Add", {{rows, 256}, {rows, 256}}, {}},
      {"add a row", "Add", {{rows, 256}, {256}}, {}},
      {"gelu", "Gelu", {{rows, 256}}, {}},
      {"softmax of 32", "Softmax", {{rows * 8, 32}}, {}},
      {"softmax of 128", "Softmax", {{rows * 2, 128}}, {}},
      {"layer_norm of 256", "LayerNormalization", {{rows, 256}, {256}, {256}}, {}},
      {"transpose 2-d", "Transpose", {{rows, 256}}, {{"perm", std::vector<int64_t>{1, 0}}}},
      {"transpose heads of 32",
       "Transpose",
       {{rows / 128, 128, 8, 32}},
       {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}},
      {"sum of rows", "ReduceSum", {{rows, 256}}, {}},
  };
}

std::vector<Figure> measure(int64_t rows) {
  std::vector<Case> cases;
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels(rows)) {
    auto prepared = std::make_shared<Prepared>(kernel.op, kernel.shapes, kernel.attributes);
    // Reductions are counted by what they read.
    const int64_t elements = std::max(prepared->elements(), rows * 256);
    const uint64_t repeats = static_cast<uint64_t>(std::max<int64_t>(1, (int64_t{1} << 23) / elements));
    const uint64_t all = repeats * static_cast<uint64_t>(elements);
    const std::string size = text(" ", elements * 4 >> 20, " MiB");
    cases.push_back({kernel.name + size, 1, all, [=](int) {
                       for (uint64_t i = 0; i < repeats; ++i) prepared->run();
                       return prepared->right() ? all : 0;
                     }});
    const size_t bytes = static_cast<size_t>(prepared->bytes_moved()) / 2;
    auto from = std::make_shared<std::vector<char>>(bytes, 'x'),
         to = std::make_shared<std::vector<char>>(bytes, 'y');
    cases.push_back({std::string("memcpy for ") + kernel.name + size, 1, all, [=](int) {
                       for (uint64_t i = 0; i < repeats; ++i) {
                         std::memcpy(to->data(), from->data(), bytes);
                         (*from)[i % bytes] = 'z';
                       }
                       return to->back() == 'x' ? all : 0;
                     }});
  }
  return compare(cases, kRounds);
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  using namespace heddle::bench;
  std::vector<Figure> all;
  for (int64_t rows : {1024, 32768}) {
    const std::vector<Figure> figures = measure(rows);
    all.insert(all.end(), figures.begin(), figures.end());
  }
  print(all);
  std::printf("time of the kernel / time of memcpy of the same bytes, by processor time\n");
  for (size_t i = 0; i + 1 < all.size(); i += 2) {
    std::printf("  %-32s %6.2f   %.3f ns per element\n", all[i].name.c_str(),
                all[i].cpu_ns.median / all[i + 1].cpu_ns.median, all[i].cpu_ns.median);
  }
  write_json(argc, argv, "host_kernels", all);
}
