#include "models/ops/product_choice_file.hpp"

namespace ranvier::models {

ChosenProducts choose_products(runtime::StreamView stream, const std::filesystem::path& path,
                               const std::string& flag, const std::function<void()>& work) {
  ProductChoiceFile file(path, flag);
  ChosenProducts result;
  result.remembered = adopt_products(stream, file.choices_of(product_library(stream)));
  result.choices = measure_products(stream, work);
  file.remember(result.choices);
  return result;
}

}  // namespace ranvier::models
