#include "drivers/cuda/libraries/blas_lt.h"

#include <algorithm>
#include <bit>

#include "base/process_exit.h"
#include "drivers/cuda/libraries/alike.h"
#include "drivers/cuda/memory.h"

namespace heddle::cuda {
namespace {

using device::MemoryKind;

constexpr int kMostAlgorithms = 8;

int type_of_blas(ir::DType dtype) {
  return dtype == ir::DType::kF16 ? kBlasF16 : dtype == ir::DType::kBF16 ? kBlasBF16 : kBlasF32;
}

// The problem with the most rows of those that are measured with this one. Where rows lie apart from each
// other by how many there are, each number is a problem of its own.
BlasProblem alike(BlasProblem problem) {
  if (problem.batches == 1 && !problem.x_turned) problem.m = most_alike(problem.m);
  return problem;
}

// Which weight the bias is does not matter.
BlasProblem key_of(BlasProblem problem) {
  problem.bias = problem.bias == 0 ? 0 : 1;
  return problem;
}

std::string name_of(const BlasProblem& p) {
  return text("product ", ir::name(p.dtype), ' ', p.m, ' ', p.n, ' ', p.k, " x ", p.batches, " lines ",
              p.x_line, ' ', p.y_line, " apart ", p.x_batch, ' ', p.y_batch,
              p.x_turned ? " turned" : " plain", p.y_turned ? " turned" : " plain",
              p.relu ? " relu" : " none", p.bias != 0 ? " bias" : " none",
              p.followed ? " followed" : " whole", " factors ", std::bit_cast<uint32_t>(p.alpha), ' ',
              std::bit_cast<uint32_t>(p.beta), " compute ", p.compute);
}

std::string words_of(const BlasAlgorithm& algorithm) {
  std::string words;
  for (const uint64_t word : algorithm.data) words += text(words.empty() ? "" : " ", word);
  return words;
}

}  // namespace

// ---- a product

// The library's matrices are sequences of columns. Our rows are columns to it, so it is told
// out^T = y^T x^T, and has y for its A and x for its B.
Status BlasProduct::describe() {
  const BlasLtApi& api = library_->api_;
  const BlasProblem& p = problem_;
  const auto check = [&](BlasCode code, std::string_view what) { return library_->check(code, what); };
  HEDDLE_TRY(check(api.operation_create(&operation_, p.compute, kBlasF32), "cublasLtMatmulDescCreate"));
  const auto set = [&](BlasAttribute attribute, const auto& value) {
    return check(api.operation_set(operation_, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  };
  const int32_t turn_a = p.y_turned ? 1 : 0, turn_b = p.x_turned ? 1 : 0;
  const uint32_t relu = p.relu ? kBlasRelu : 0, bias = p.bias != 0 ? kBlasAddBias : 0;
  HEDDLE_TRY(set(kBlasTurnA, turn_a));
  HEDDLE_TRY(set(kBlasTurnB, turn_b));
  HEDDLE_TRY(set(kBlasEpilogue, relu + bias == 0 ? kBlasPlain : relu + bias));
  if (p.bias != 0) HEDDLE_TRY(set(kBlasBias, p.bias));
  const auto layout = [&](BlasLayout& made, int64_t line_length, int64_t lines, int64_t line,
                          int64_t batch) -> Status {
    HEDDLE_TRY(check(api.layout_create(&made, type_of_blas(p.dtype), static_cast<uint64_t>(line_length),
                                       static_cast<uint64_t>(lines), line),
                     "cublasLtMatrixLayoutCreate"));
    if (p.batches == 1) return {};
    const auto batches = static_cast<int32_t>(p.batches);
    HEDDLE_TRY(check(api.layout_set(made, kBlasBatches, &batches, sizeof batches),
                     "cublasLtMatrixLayoutSetAttribute"));
    return check(api.layout_set(made, kBlasBatchStride, &batch, sizeof batch),
                 "cublasLtMatrixLayoutSetAttribute");
  };
  HEDDLE_TRY(layout(y_, p.y_turned ? p.k : p.n, p.y_turned ? p.n : p.k, p.y_line, p.y_batch));
  HEDDLE_TRY(layout(x_, p.x_turned ? p.m : p.k, p.x_turned ? p.k : p.m, p.x_line, p.x_batch));
  return layout(out_, p.n, p.m, p.n, p.m * p.n);
}

BlasProduct::~BlasProduct() {
  const BlasLtApi& api = library_->api_;
  for (BlasLayout each : {x_, y_, out_}) {
    if (each != nullptr) api.layout_destroy(each);
  }
  if (operation_ != nullptr) api.operation_destroy(operation_);
}

Result<std::vector<BlasHeuristic>> BlasProduct::proposed() const {
  const BlasLtApi& api = library_->api_;
  BlasPreference preference = nullptr;
  HEDDLE_TRY(library_->check(api.preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
  BlasCode code = api.preference_set(preference, kBlasMostWorkspace, &kMostWorkspaceBytes, sizeof(uint64_t));
  const auto align = static_cast<uint32_t>(BlasOperands::kAlign);
  for (int matrix = 0; matrix < 4 && code == kBlasSuccess; ++matrix)
    code = api.preference_set(preference, kBlasAlignmentOfA + matrix, &align, sizeof align);
  std::vector<BlasHeuristic> found(kMostAlgorithms);
  int count = 0;
  if (code == kBlasSuccess) {
    code = api.heuristics(library_->handle_, operation_, y_, x_, out_, out_, preference, kMostAlgorithms,
                          found.data(), &count);
  }
  api.preference_destroy(preference);
  if (code == kBlasNotSupported) count = 0;
  if (code != kBlasNotSupported) HEDDLE_TRY(library_->check(code, "cublasLtMatmulAlgoGetHeuristic"));
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const BlasHeuristic& each) { return each.code != kBlasSuccess; });
  return found;
}

Result<std::optional<BlasHeuristic>> BlasProduct::fitted(const BlasAlgorithm& algorithm) const {
  BlasHeuristic checked{};
  const BlasCode code =
      library_->api_.algorithm_check(library_->handle_, operation_, y_, x_, out_, out_, &algorithm, &checked);
  if (code == kBlasNotSupported || code == kBlasInvalidValue) return std::optional<BlasHeuristic>();
  HEDDLE_TRY(library_->check(code, "cublasLtMatmulAlgoCheck"));
  if (checked.code != kBlasSuccess || checked.workspace_bytes > kMostWorkspaceBytes)
    return std::optional<BlasHeuristic>();
  checked.algorithm = algorithm;
  return std::optional<BlasHeuristic>(checked);
}

bool BlasProduct::takes(const void* operands) const { return operands_of<BlasOperands>(operands).aligned(); }

Status BlasProduct::run(const void* operands, StreamHandle stream) const {
  return run(operands_of<BlasOperands>(operands), stream, chosen_);
}

Status BlasProduct::run(const BlasOperands& operands, StreamHandle stream, const BlasHeuristic& by) const {
  return library_->check(enqueue(operands, stream, by), "cublasLtMatmul");
}

BlasCode BlasProduct::enqueue(const BlasOperands& operands, StreamHandle stream,
                              const BlasHeuristic& by) const {
  const void* const c = pointer_to(operands.c == 0 ? operands.out : operands.c);
  return library_->api_.multiply(library_->handle_, operation_, &problem_.alpha, pointer_to(operands.y), y_,
                                 pointer_to(operands.x), x_, &problem_.beta, c, out_,
                                 pointer_to(operands.out), out_, &by.algorithm,
                                 pointer_to(operands.workspace), by.workspace_bytes, stream);
}

// ---- the library

Result<Ref<const BlasLt>> BlasLt::make(const BlasLtApi& api, Ref<const OpenDevice> device,
                                       const LibraryTuning& tuning) {
  const Current current(*device);
  const std::shared_ptr<BlasLt> made(new BlasLt(api, std::move(device), tuning));
  HEDDLE_TRY(made->check(api.create(&made->handle_), "cublasLtCreate"));
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF16, ir::DType::kBF16})
    HEDDLE_TRY(made->compute_once(dtype));
  renew_exit_handler();
  return Ref<const BlasLt>(made);
}

BlasLt::~BlasLt() {
  if (handle_ == nullptr || !device_->is_ours()) return;
  const Current current(*device_);
  api_.destroy(handle_);
}

std::string BlasLt::version() const {
  const size_t number = api_.version();
  return text(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

std::string BlasLt::describe_choices() const { return choices_.describe("by rule"); }

Status BlasLt::check(BlasCode code, std::string_view what) const {
  if (code == kBlasSuccess) return {};
  return Status::internal("cuBLASLt ", version(), ": ", what, " returned status ", code);
}

Status BlasLt::compute_once(ir::DType dtype) const {
  constexpr int64_t kExtent = 128;
  BlasProblem problem;
  problem.dtype = dtype;
  problem.m = problem.n = problem.k = problem.x_line = problem.y_line = kExtent;
  BlasProduct product(shared_from_this(), problem);
  HEDDLE_TRY(product.describe());
  HEDDLE_TRY_ASSIGN(const std::vector<BlasHeuristic> proposed, product.proposed());
  if (proposed.empty()) return Status::unsupported("cuBLASLt ", version(), " multiplies no ", dtype);
  const auto matrix = static_cast<uint64_t>(kExtent * kExtent * ir::size_of(dtype));
  HEDDLE_TRY_ASSIGN(const std::unique_ptr<device::Memory> memory,
                    allocate(device_, 3 * matrix + proposed.front().workspace_bytes, MemoryKind::device));
  const Settled settled(*device_);
  BlasOperands operands;
  operands.x = memory->address();
  operands.y = operands.x + matrix;
  operands.out = operands.y + matrix;
  operands.workspace = operands.out + matrix;
  HEDDLE_TRY(clear(*device_, operands.x, 3 * matrix));
  HEDDLE_TRY(product.run(operands, device_->stream, proposed.front()));
  return device_->check(device_->api.stream_synchronize(device_->stream), "the first product of cuBLASLt");
}

Result<ProductChoice> BlasLt::product(const BlasProblem& problem, const BlasRivals& rivals,
                                      device::Source& source) const {
  Result<ProductChoice> made = make_product(problem, rivals, source);
  if (made.ok() || !device_->lost.status().ok()) return made;
  trouble_.tell(made.status());
  return ProductChoice();
}

Result<std::shared_ptr<BlasProduct>> BlasLt::described(const BlasProblem& problem) const {
  const std::shared_ptr<BlasProduct> product(new BlasProduct(shared_from_this(), problem));
  HEDDLE_TRY(product->describe());
  return product;
}

// ---- the choice

// Of a product, for ChosenOnce.
class BlasLt::Asked {
 public:
  Asked(const BlasProduct& product, const BlasRivals& rivals, device::Source& source)
      : product_(product), rival_(rivals(product.problem_.m)), source_(source) {}

  std::string name() const { return name_of(key_of(product_.problem_)); }
  Result<Choices::Ways> ways() const {
    HEDDLE_TRY_ASSIGN(const std::vector<BlasHeuristic> proposed, product_.proposed());
    Choices::Ways ways;
    for (const BlasHeuristic& each : proposed)
      ways.push_back({words_of(each.algorithm), each, each.workspace_bytes});
    ways.push_back({.word = AlgorithmStore::kOurs});
    for (const auto& each : rival_.others) ways.push_back({.word = each.word, .gain = each.gain});
    return ways;
  }
  // The library's first proposal, but for f32 in few rows, where our kernels were faster on an H200.
  Result<Chosen> unmeasured(Choices::Ways ways) const {
    constexpr int64_t kFewRows = 128;
    const BlasProblem& p = product_.problem_;
    const bool few = p.dtype == ir::DType::kF32 && p.m > 1 && p.m < kFewRows;
    return few || !ways.front().algorithm.has_value() ? Chosen() : ways.front();
  }
  Result<std::vector<float>> time(Choices::Ways& ways) const;

 private:
  // Where its operands lie, one behind another, and then the workspace.
  BlasOperands places() const;

  const BlasProduct& product_;
  const Rival<BlasOperands> rival_;
  device::Source& source_;
};

BlasOperands BlasLt::Asked::places() const {
  const BlasProblem& p = product_.problem_;
  constexpr uint64_t kAlign = 256;
  uint64_t bytes = 0;
  const auto place = [&](int64_t elements) {
    const uint64_t at = bytes;
    bytes += (static_cast<uint64_t>(elements * ir::size_of(p.dtype)) + kAlign - 1) / kAlign * kAlign;
    return at;
  };
  const auto extent = [&](int64_t lines, int64_t line, int64_t batch) {
    return lines * line + (p.batches - 1) * batch;
  };
  BlasOperands operands;
  operands.x = place(extent(p.x_turned ? p.k : p.m, p.x_line, p.x_batch));
  operands.y = place(extent(p.y_turned ? p.n : p.k, p.y_line, p.y_batch));
  operands.out = place(p.batches * p.m * p.n);
  operands.workspace = bytes;
  return operands;
}

Result<std::vector<float>> BlasLt::Asked::time(Choices::Ways& ways) const {
  const OpenDevice& device = *product_.library_->device_;
  BlasOperands operands = places();
  uint64_t workspace = 0;
  for (const Chosen& each : ways) workspace = std::max(workspace, each.workspace_bytes);
  HEDDLE_TRY_ASSIGN(const Ref<device::Buffer> memory, source_.allocate(operands.workspace + workspace));
  const Settled settled(device);
  for (uint64_t* each : {&operands.x, &operands.y, &operands.out, &operands.workspace})
    *each += memory->address();
  operands.c = operands.out;
  HEDDLE_TRY(clear(device, operands.x, operands.workspace - operands.x));
  HEDDLE_TRY(leave_out_refused(ways, [&](const BlasHeuristic& by) -> Result<bool> {
    const BlasCode code = product_.enqueue(operands, device.stream, by);
    if (code == kBlasNotSupported) return false;
    HEDDLE_TRY(product_.library_->check(code, "cublasLtMatmul"));
    return true;
  }));
  return time_each(device, ways, [&](const Chosen& way) -> Status {
    for (const auto& each : rival_.others) {
      if (way.word == each.word) return each.whole(operands, device.stream);
    }
    if (!way.algorithm.has_value()) return rival_.whole(operands, device.stream);
    HEDDLE_TRY(product_.run(operands, device.stream, *way.algorithm));
    return product_.problem_.followed ? rival_.rest(operands, device.stream) : Status();
  });
}

Result<BlasLt::Chosen> BlasLt::choose(const BlasProduct& product, const BlasRivals& rivals,
                                      device::Source& source) const {
  return choices_.choose(key_of(product.problem_), Asked(product, rivals, source));
}

Result<ProductChoice> BlasLt::make_product(const BlasProblem& problem, const BlasRivals& rivals,
                                           device::Source& source) const {
  const Current current(*device_);
  HEDDLE_TRY_ASSIGN(const std::shared_ptr<BlasProduct> product, described(problem));
  const auto choose_for = [&](const BlasProblem& of) -> Result<Chosen> {
    if (of == problem) return choose(*product, rivals, source);
    HEDDLE_TRY_ASSIGN(const std::shared_ptr<BlasProduct> other, described(of));
    return choose(*other, rivals, source);
  };
  const auto fit = [&](const BlasHeuristic& by) { return product->fitted(by.algorithm); };
  Result<Chosen> choice = choices_.choose_alike(problem, alike(problem), choose_for, fit);
  if (choice.status().code() == heddle::Code::exhausted) {
    Asked asked(*product, rivals, source);
    HEDDLE_TRY_ASSIGN(Choices::Ways ways, asked.ways());
    choice = asked.unmeasured(std::move(ways));
  }
  HEDDLE_TRY(choice.status());
  if (!choice->algorithm.has_value()) return ProductChoice{nullptr, choice->word};
  product->chosen_ = *choice->algorithm;
  return ProductChoice{product};
}

size_t BlasLt::Hash::operator()(const BlasProblem& p) const {
  uint64_t hash = static_cast<uint64_t>(p.dtype) * 8 + (p.x_turned ? 4 : 0) + (p.y_turned ? 2 : 0) + p.relu;
  hash = (hash * 2 + p.followed) * 128 + static_cast<uint64_t>(p.compute);
  for (const int64_t each : {p.m, p.n, p.k, p.batches, p.x_line, p.y_line, p.x_batch, p.y_batch})
    hash = (hash ^ static_cast<uint64_t>(each)) * 0x9e3779b97f4a7c15u;
  return hash;
}

}  // namespace heddle::cuda
