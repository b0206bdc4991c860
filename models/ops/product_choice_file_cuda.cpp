#include "models/ops/product_choice_file.hpp"

namespace ranvier::models {

ChosenProducts choose_products(runtime::StreamView stream, const std::filesystem::path& path,
                               const std::string& flag, const std::function<void()>& work) {
  ProductChoiceFile file(path, flag);
  ChosenProducts result;
  const ProductChoices known = file.choices_of(product_library(stream));
  if (known.choices.empty()) result.instead = file.libraries();
  result.remembered = adopt_products(stream, known);
  result.choices = measure_products(stream, work);
  file.remember(result.choices);
  return result;
}

}  // namespace ranvier::models
