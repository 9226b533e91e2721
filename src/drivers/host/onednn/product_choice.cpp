#include "drivers/host/onednn/product_choice.h"

#include <optional>
#include <utility>

#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/product_tuning.h"

namespace heddle::host {
namespace {

struct DividedProduct {
  Ref<const Product> product;
  bool fast;
};

// None: oneDNN has no kernel for a block of it, and the default rule finds pieces that it has one for.
Result<std::optional<ChosenProduct>> measured(const Engine& engine, const ProductProblem& problem,
                                              const Ref<const LinearWeight>& weight, const Way& way) {
  HEDDLE_TRY_ASSIGN(auto product, Product::make(engine, problem, weight, way));
  if (!product->fast()) return std::optional<ChosenProduct>();
  return std::optional<ChosenProduct>({std::move(product), true});
}

}  // namespace

std::string to_string(const ChosenProduct& chosen) {
  return text(to_string(chosen.product == nullptr ? Way{} : chosen.product->way()),
              chosen.measured ? ", measured" : ", by rule");
}

Result<ChosenProduct> product_alone(const Engine& engine, const ProductProblem& problem,
                                    const Ref<const LinearWeight>& weight) {
  if (engine.tuning != nullptr) {
    HEDDLE_TRY_ASSIGN(const std::optional<Way> way, engine.tuning->alone(engine, problem, weight));
    if (way) {
      HEDDLE_TRY_ASSIGN(std::optional<ChosenProduct> chosen, measured(engine, problem, weight, *way));
      if (chosen) return *std::move(chosen);
    }
  }
  HEDDLE_TRY_ASSIGN(auto whole, Product::make(engine, problem, weight, Way{}));
  return ChosenProduct{std::move(whole)};
}

Result<ChosenProduct> product_shared(const Engine& engine, const ProductProblem& problem,
                                     const Ref<const LinearWeight>& weight, int width) {
  const ProductShape shape = shape_of(engine, problem, *weight);
  if (engine.tuning != nullptr) {
    HEDDLE_TRY_ASSIGN(const std::optional<Way> way, engine.tuning->shared(engine, problem, weight, width));
    const bool much_more = problem.m >= 2 * rung_shared(problem.m, width);
    if (way && pieces_of(shape, *way) < 2 && !much_more) return ChosenProduct{nullptr, true};
    if (way && pieces_of(shape, *way) >= 2) {
      HEDDLE_TRY_ASSIGN(std::optional<ChosenProduct> chosen, measured(engine, problem, weight, *way));
      if (chosen) return *std::move(chosen);
    }
  }
  const auto divide = [&](int n) -> Result<std::optional<DividedProduct>> {
    HEDDLE_TRY_ASSIGN(auto product, Product::make(engine, problem, weight, default_shared(shape, n)));
    const bool fast = product->fast();
    return std::optional<DividedProduct>({std::move(product), fast});
  };
  HEDDLE_TRY_ASSIGN(DividedProduct finest, finest_division<DividedProduct>(width, divide));
  if (finest.product->pieces() < 2) return ChosenProduct{};
  return ChosenProduct{std::move(finest.product)};
}

}  // namespace heddle::host
