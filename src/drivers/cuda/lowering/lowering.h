// lowering.h: node -> launches, one table entry per operator of ir.
//
//   What       find_lowering() maps an operator's name to the function that adds its launches to a program.
//              Families list their entries in one array each (a file a family); lowering.cpp gathers them. No
//              entry: unsupported, by name.
//   Operands   Contiguous, row-major or channels last (channels_last.h: who gets them so). Which address each
//              has a run knows (Patch); constants have theirs.
//   Scratch    Memory of the arena that is the node's own while its launches run.
//   Threads    One thread makes one program.
#pragma once

#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/cuda/kernels/flags.h"
#include "drivers/cuda/libraries/blas_lt.h"
#include "drivers/cuda/libraries/compiled_kernels.h"
#include "drivers/cuda/libraries/cudnn.h"
#include "drivers/cuda/lowering/channels_last.h"
#include "drivers/cuda/program.h"
#include "drivers/cuda/strides.h"
#include "drivers/cuda/weights.h"
#include "ir/graph.h"

namespace heddle::cuda {

struct Operand {
  plan::Place place;
  ir::DType dtype = ir::DType::kF32;
  ir::Extents extents;
  uint64_t offset = 0;         // bytes behind its place
  Address constant = 0;        // kConstant
  bool channels_last = false;  // [N, C, plane..] that lies [N, plane.., C]

  bool present() const { return place.kind != plan::Place::Kind::kNone; }
  int64_t elements() const { return extents.elements(); }
  int64_t element_bytes() const { return ir::size_of(dtype); }
  std::vector<int64_t> strides() const {
    return channels_last ? channels_last_strides(extents.span()) : row_major(extents.span());
  }
  Operand as(const ir::Extents& other) const {  // the same bytes in another shape
    Operand renamed = *this;
    renamed.extents = other;
    return renamed;
  }
  Operand from(int64_t element) const {  // what lies behind an element
    Operand behind = *this;
    behind.offset += static_cast<uint64_t>(element * element_bytes());
    return behind;
  }
};

// An address among the parameters, and what it names.
struct Bind {
  const uint64_t* field;
  Operand operand;
};
inline Bind names(const uint64_t& field, const Operand& operand) { return {&field, operand}; }

// The elements of `out` as they lie one behind another, and where those of the operands are that are
// broadcast to it.
Walk walk_to(const Operand& out, std::span<const Operand> in);

struct Grid {
  int64_t blocks;
  int64_t threads = kThreads;
  int64_t shared_bytes = 0;
};

// A block for each of `rows`, with as many threads as `extent` elements are worth, and a word for each.
Grid rows_grid(int64_t rows, int64_t extent, ir::DType dtype);

// Teams of threads that make a row each, as kernels/block.h combines them.
struct Teams {
  int32_t lanes;  // of a team; only the row's length decides
  Grid grid;
};
Teams teams_for(int64_t rows, int64_t extent, int64_t word_bytes, int multiprocessors);

// What of NVIDIA's takes part in a module.
struct Libraries {
  Ref<const BlasLt> blas;  // null: none
  Ref<const Cudnn> cudnn;  // null: none
  // With factors of f32.
  int compute = kBlasComputeF32, math = kCudnnFmaMath;
  Ref<const CompiledKernels> chains;  // null: they are interpreted
  bool exact = true;                  // a row's bits must not depend on other rows
};

// What a graph became, node by node; for people.
struct Outline {
  struct Steps {
    size_t first, end;  // of Lowered::steps; none for a renamed shape, and where there is nothing to compute
  };
  std::vector<Steps> nodes;
  uint64_t arena_bytes = 0, arena_bytes_apart = 0;  // of values between nodes; if no byte were used twice
};

struct Lowering;
using Lower = Status (*)(Lowering& lowering);

class Emitter {
 public:
  // `constants`: the module's, then the program's. `source`: memory of tables, and while the program is made.
  Emitter(Ref<const OpenDevice> device, std::vector<const Weights*> constants, const TurnedWeights& turned,
          const Libraries& libraries, device::Source& source)
      : device_(std::move(device)),
        constants_(std::move(constants)),
        turned_(turned),
        libraries_(libraries),
        source_(source) {}

  Status graph(const ir::Graph& graph, const std::vector<Operand>& inputs,
               const std::vector<Operand>& outputs);
  Result<Lowered> take();

  // One launch. internal: the list of kernels has no such name, or it takes other parameters.
  // `why`: for people, it is this one and no better one.
  Status launch(std::string_view kernel, const void* params, size_t bytes, std::span<const Bind> binds,
                const Flags* flags, const Grid& grid, const char* why = "");
  // The same of a kernel that may lie beside the list.
  void launch(const Kernel& kernel, const void* params, size_t bytes, std::span<const Bind> binds,
              const Flags* flags, const Grid& grid, const char* why = "");
  Result<CompiledKernels::Found> compiled(const char* name, const std::string& source, size_t params_bytes);
  // Kernels of ours where no library takes part, it cannot, or the rival wins.
  Result<ProductChoice> library_product(const BlasProblem& problem, const BlasRivals& rivals);
  // Null where no library takes part, it cannot, or the rival is as fast.
  Result<Ref<const LibraryCall>> library_convolution(const ConvolutionProblem& problem,
                                                     const ConvolutionRivals& rivals);
  // A launch outside of the program, with parameters as they are. `in_chain`: behind one of the same kernel
  // it begins as early as it would in a graph.
  Status launch_now(std::string_view kernel, const void* params, const Grid& grid, StreamHandle stream,
                    bool in_chain = false) const;
  // A call of the library; `launches` of the same have to follow.
  template <class Operands>
  Status call(Ref<const LibraryCall> library, const Operands& operands, std::span<const Bind> binds,
              const std::function<Status()>& launches) {
    const size_t at = out_.steps.size();
    out_.steps.push_back(
        LibraryStep{std::move(library), arguments(&operands, sizeof operands, binds, nullptr)});
    HEDDLE_TRY(launches());
    std::get<LibraryStep>(out_.steps[at]).launches = static_cast<uint32_t>(out_.steps.size() - at - 1);
    return {};
  }
  Operand scratch(ir::DType dtype, const ir::Extents& extents);
  Flags flags(std::string mistake, int64_t count, int64_t inner);
  Operand constant(const ir::Tensor& tensor) const;  // one of the graph's
  // Numbers that a lowering has made, as a constant of the program. Blocks until the GPU has them.
  Result<Operand> table(const ir::Tensor& tensor);
  const std::vector<Ref<const Weights>>& tables() const { return tables_; }
  // A convolution's weight with its channels last: the module's, which `shared()` keeps, else a table.
  Result<Operand> turned_weight(const ir::Tensor& weight);
  const std::vector<Ref<const TurnedWeight>>& shared() const { return shared_; }
  const Outline& outline() const { return outline_; }  // of the graph that no node holds
  int multiprocessors() const { return device_->multiprocessors; }
  bool has_kernel(std::string_view name) const { return device_->kernels.find(name) != nullptr; }
  bool clusters() const { return device_->kernels.clusters(); }
  bool exact() const { return libraries_.exact; }

  // What is emitted while it is set counts only where the bool is true.
  std::optional<Operand> enabled;

 private:
  Result<ChannelsLast> channels_last(const ir::Graph& graph, const std::vector<Operand>& operands);
  Status node(const ir::Graph& graph, const ir::Node& node, const std::vector<Operand>& operands,
              bool channels_last);
  Status in_its_order(Lowering& lowering, Lower lower, bool channels_last);
  Arguments arguments(const void* params, size_t bytes, std::span<const Bind> binds, const Flags* flags);

  const Ref<const OpenDevice> device_;
  const std::vector<const Weights*> constants_;
  const TurnedWeights& turned_;
  std::vector<Ref<const Weights>> tables_;
  std::vector<Ref<const TurnedWeight>> shared_;
  const Libraries libraries_;
  device::Source& source_;
  Lowered out_;
  Outline outline_;
  int depth_ = 0;     // of the graph that is emitted, in nodes that hold graphs
  uint64_t top_ = 0;  // of the arena, as far as it is taken
};

struct Lowering {
  Emitter& emit;
  const ir::Graph& graph;  // specialised: every type static
  const ir::Node& node;
  std::vector<Operand> inputs;   // as many as node.inputs; absent ones are not present()
  std::vector<Operand> outputs;  // those without elements are given, too

  bool has(size_t input) const { return input < inputs.size() && inputs[input].present(); }
  const ir::Value& value(size_t input) const { return graph.values[node.inputs[input]]; }
  const ir::Attributes& attributes() const { return node.attributes; }
  const ir::Tensor* constant(size_t input) const;  // null: not known while compiling
  Result<std::vector<int64_t>> integers(size_t input, std::string_view what) const;

  template <class P>
  Status launch(std::string_view kernel, const P& params, std::initializer_list<Bind> binds,
                const Grid& grid) {
    return emit.launch(kernel, &params, sizeof params, {binds.begin(), binds.size()}, nullptr, grid);
  }
  template <class P>
  Status launch(std::string_view kernel, const P& params, std::initializer_list<Bind> binds,
                const Flags& flags, const Grid& grid) {
    return emit.launch(kernel, &params, sizeof params, {binds.begin(), binds.size()}, &flags, grid);
  }
  Grid grid(int64_t count) const { return {static_cast<int64_t>(blocks_for(count, emit.multiprocessors()))}; }
  // Elements of `input` that can be wrong, so many of them for each place along the axis of its rows.
  Flags flags(size_t input, std::string mistake);
  // Copies elements; strides in elements, of operands that begin at their first one. Of a `to` that lies
  // channels last all are told by the axes of [N, C, plane..].
  Status move(const Operand& from, const std::vector<int64_t>& from_strides, const Operand& to,
              const std::vector<int64_t>& to_strides, std::span<const int64_t> extents);
  // The same elements of a rank of 3 and more, as each of both lies.
  Status turn(const Operand& from, const Operand& to);
  Status fill(const Operand& to, double value);
  Status cast(const Operand& from, const Operand& to);  // elements in order
};

struct LoweringEntry {
  std::string_view op;
  Lower lower;
};
Lower find_lowering(std::string_view op);  // null when the driver cannot run it
// Whether cuDNN computes this Conv channels last, and no kernel of ours is as fast.
Result<bool> convolves_channels_last(const Lowering& lowering);

std::span<const LoweringEntry> elementwise_lowerings();
std::span<const LoweringEntry> chain_lowerings();
std::span<const LoweringEntry> movement_lowerings();
std::span<const LoweringEntry> reduction_lowerings();
std::span<const LoweringEntry> row_lowerings();
std::span<const LoweringEntry> product_lowerings();
std::span<const LoweringEntry> index_lowerings();
std::span<const LoweringEntry> control_lowerings();
std::span<const LoweringEntry> order_lowerings();
std::span<const LoweringEntry> scatter_lowerings();
std::span<const LoweringEntry> matrix_lowerings();
std::span<const LoweringEntry> attention_lowerings();
std::span<const LoweringEntry> recurrent_lowerings();
std::span<const LoweringEntry> convolution_lowerings();
std::span<const LoweringEntry> pool_lowerings();
std::span<const LoweringEntry> sampling_lowerings();

// What a kernel computes in, as the ends of their names say: "_f32", "_f64", "_i64", "_u64".
std::string_view computed_in(ir::DType dtype);
std::string_view by_bytes(int64_t size);  // "_1", "_2", "_4", "_8"

}  // namespace heddle::cuda
