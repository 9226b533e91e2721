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
constexpr char kOursForFewRows[] = "ours for few rows";  // beside AlgorithmStore::kOurs

int type_of_blas(ir::DType dtype) {
  return dtype == ir::DType::kF16 ? kBlasF16 : dtype == ir::DType::kBF16 ? kBlasBF16 : kBlasF32;
}

// The problem with the most rows of those that are measured with this one. Where rows lie apart from each
// other by how many there are, each number is a problem of its own.
BlasProblem alike(BlasProblem problem) {
  if (problem.batches == 1 && !problem.x_turned) problem.m = most_alike(problem.m);
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
  if (tuning.on) {
    made->store_ = std::make_unique<AlgorithmStore>(
        tuning, "cublaslt", text(made->device_->identity(), "; cuBLASLt ", made->version()));
  }
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

std::string BlasLt::describe_choices() const {
  return store_ != nullptr ? store_->describe() : "by rule: HEDDLE_TUNE is off";
}

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

// The library's first proposal, but for f32 in few rows, where our tiles were faster on an H200.
BlasLt::Choice BlasLt::unmeasured(const BlasProblem& p, const std::vector<BlasHeuristic>& proposed) {
  constexpr int64_t kFewRows = 128;
  const bool few = p.dtype == ir::DType::kF32 && p.m > 1 && p.m < kFewRows;
  return few || proposed.empty() ? Choice() : Choice{proposed.front()};
}

Result<std::shared_ptr<BlasProduct>> BlasLt::described(const BlasProblem& problem) const {
  const std::shared_ptr<BlasProduct> product(new BlasProduct(shared_from_this(), problem));
  HEDDLE_TRY(product->describe());
  return product;
}

Result<ProductChoice> BlasLt::make_product(const BlasProblem& problem, const BlasRivals& rivals,
                                           device::Source& source) const {
  const Current current(*device_);
  HEDDLE_TRY_ASSIGN(const std::shared_ptr<BlasProduct> product, described(problem));
  Result<Choice> choice = choice_of(*product, rivals, source);
  if (choice.status().code() == heddle::Code::exhausted) {  // the next program asks anew
    HEDDLE_TRY_ASSIGN(const std::vector<BlasHeuristic> proposed, product->proposed());
    choice = unmeasured(problem, proposed);
  }
  HEDDLE_TRY(choice.status());
  if (!choice->library.has_value()) return ProductChoice{nullptr, choice->own};
  product->chosen_ = *choice->library;
  return ProductChoice{product};
}

Result<BlasLt::Choice> BlasLt::choice_of(const BlasProduct& product, const BlasRivals& rivals,
                                         device::Source& source) const {
  const BlasProblem measured = alike(product.problem_);
  if (store_ == nullptr || measured == product.problem_) return chosen_once(product, rivals, source);
  HEDDLE_TRY_ASSIGN(const std::shared_ptr<BlasProduct> most, described(measured));
  HEDDLE_TRY_ASSIGN(const Choice choice, chosen_once(*most, rivals, source));
  if (!choice.library.has_value()) return choice;
  HEDDLE_TRY_ASSIGN(const std::optional<BlasHeuristic> fitted, product.fitted(choice.library->algorithm));
  return fitted.has_value() ? Choice{fitted} : chosen_once(product, rivals, source);
}

Result<BlasLt::Choice> BlasLt::chosen_once(const BlasProduct& product, const BlasRivals& rivals,
                                           device::Source& source) const {
  BlasProblem key = product.problem_;
  key.bias = key.bias == 0 ? 0 : 1;  // which weight it is does not matter
  const auto choose_once = [&]() -> Result<Ref<const Choice>> {
    const Result<Choice> made = choose(key, product, rivals(key.m), source);
    renew_exit_handler();  // each kind of kernel may bring static objects
    if (!made.ok()) return made.status();
    return std::make_shared<const Choice>(*made);
  };
  HEDDLE_TRY_ASSIGN(const Ref<const Choice> chosen, choices_.get_or_make(key, choose_once));
  return *chosen;
}

// A kept choice counts only if the library proposes it: other bytes mean nothing known.
Result<BlasLt::Choice> BlasLt::choose(const BlasProblem& key, const BlasProduct& product,
                                      const Rival<BlasOperands>& rival, device::Source& source) const {
  HEDDLE_TRY_ASSIGN(std::vector<BlasHeuristic> proposed, product.proposed());
  if (proposed.empty()) return Choice();
  if (store_ == nullptr) return unmeasured(key, proposed);
  const std::string name = name_of(key);
  const auto proposal = [&](const std::string& kept) -> std::optional<Choice> {
    if (kept == AlgorithmStore::kOurs) return Choice{std::nullopt, Own::kTiles};
    if (kept == kOursForFewRows && rival.few) return Choice{std::nullopt, Own::kFewRows};
    for (const BlasHeuristic& each : proposed) {
      if (words_of(each.algorithm) == kept) return Choice{each};
    }
    return std::nullopt;
  };
  const std::optional<std::string> kept = store_->find(name);
  if (kept.has_value()) {
    if (const std::optional<Choice> choice = proposal(*kept); choice.has_value()) return *choice;
  }
  HEDDLE_TRY_ASSIGN(const Choice measured, measure(product, proposed, rival, source));
  const std::string words = measured.library.has_value()    ? words_of(measured.library->algorithm)
                            : measured.own == Own::kFewRows ? kOursForFewRows
                                                            : AlgorithmStore::kOurs;
  return proposal(store_->keep(name, words, kept.has_value())).value_or(measured);
}

Result<BlasLt::Choice> BlasLt::measure(const BlasProduct& product, std::vector<BlasHeuristic>& proposed,
                                       const Rival<BlasOperands>& rival, device::Source& source) const {
  const BlasProblem& p = product.problem_;
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
  for (const BlasHeuristic& each : proposed)
    bytes = std::max(bytes, operands.workspace + each.workspace_bytes);
  HEDDLE_TRY_ASSIGN(const Ref<device::Buffer> memory, source.allocate(bytes));
  const Settled settled(*device_);
  for (uint64_t* each : {&operands.x, &operands.y, &operands.out, &operands.workspace})
    *each += memory->address();
  operands.c = operands.out;
  HEDDLE_TRY(clear(*device_, operands.x, operands.workspace - operands.x));

  // What it proposes and then refuses, it cannot. Another failure may pass, and decides nothing.
  for (size_t i = 0; i < proposed.size();) {
    const BlasCode code = product.enqueue(operands, device_->stream, proposed[i]);
    if (code == kBlasNotSupported) {
      proposed.erase(proposed.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    HEDDLE_TRY(check(code, "cublasLtMatmul"));
    ++i;
  }
  std::vector<std::function<Status()>> ways;
  for (const BlasHeuristic& each : proposed) {
    ways.emplace_back([&, by = &each]() -> Status {
      HEDDLE_TRY(product.run(operands, device_->stream, *by));
      return p.followed ? rival.rest(operands, device_->stream) : Status();
    });
  }
  ways.emplace_back([&] { return rival.whole(operands, device_->stream); });
  if (rival.few) ways.emplace_back([&] { return rival.few(operands, device_->stream); });
  HEDDLE_TRY_ASSIGN(const std::vector<float> times, times_of(*device_, ways));
  const size_t tiles = proposed.size(), best = fastest(std::span(times).first(tiles + 1));
  const bool equal_terms = best == tiles || proposed[best].workspace_bytes > 0;
  if (rival.few && times.back() * (equal_terms ? 1 : kGainOfFewRows) <= times[best])
    return Choice{std::nullopt, Own::kFewRows};
  return best == tiles ? Choice{std::nullopt, Own::kTiles} : Choice{proposed[best]};
}

size_t BlasLt::Hash::operator()(const BlasProblem& p) const {
  uint64_t hash = static_cast<uint64_t>(p.dtype) * 8 + (p.x_turned ? 4 : 0) + (p.y_turned ? 2 : 0) + p.relu;
  hash = (hash * 2 + p.followed) * 128 + static_cast<uint64_t>(p.compute);
  for (const int64_t each : {p.m, p.n, p.k, p.batches, p.x_line, p.y_line, p.x_batch, p.y_batch})
    hash = (hash ^ static_cast<uint64_t>(each)) * 0x9e3779b97f4a7c15u;
  return hash;
}

}  // namespace heddle::cuda
