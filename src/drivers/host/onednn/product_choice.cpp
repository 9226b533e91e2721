#include "drivers/host/onednn/product_choice.h"

#include <optional>
#include <utility>

#include "drivers/host/onednn/division.h"

namespace heddle::host {
namespace {

struct DividedProduct {
  Ref<const Product> product;
  bool fast;
};

}  // namespace

std::string to_string(const ChosenProduct& chosen) {
  return text(to_string(chosen.product == nullptr ? Way{} : chosen.product->way()), ", by rule");
}

Result<ChosenProduct> product_alone(const Engine& engine, const ProductProblem& problem,
                                    const Ref<const LinearWeight>& weight) {
  const ProductShape shape = shape_of(engine, problem, *weight);
  HEDDLE_TRY_ASSIGN(auto product, Product::make(engine, problem, weight, default_alone(shape)));
  if (product->fast() || product->way() == Way{}) return ChosenProduct{std::move(product)};
  HEDDLE_TRY_ASSIGN(auto whole, Product::make(engine, problem, weight, Way{}));
  return ChosenProduct{whole->fast() ? std::move(whole) : std::move(product)};
}

Result<ChosenProduct> product_shared(const Engine& engine, const ProductProblem& problem,
                                     const Ref<const LinearWeight>& weight, int width) {
  const ProductShape shape = shape_of(engine, problem, *weight);
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
