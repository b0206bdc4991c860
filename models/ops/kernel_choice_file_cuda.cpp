#include "models/ops/kernel_choice_file.hpp"

namespace ranvier::models {

ChosenKernels choose_kernels(runtime::StreamView stream, const KernelQuestion& question,
                             const std::function<void()>& work) {
  std::optional<KernelChoiceFile> file;
  if (!question.file.empty()) file.emplace(question.file, question.flag);
  ChosenKernels result;
  KernelChoices to_remember;
  const auto with_attention = [&] {
    if (question.attention == AttentionKernels::own || !attention_library_obstacle().empty()) return work();
    const bool is_measured = question.attention == AttentionKernels::measured;
    AttentionChoices known;
    if (file && is_measured) {
      known = file->choices_of(attention_library(stream));
      if (known.choices.empty()) result.instead.attention = file->all().attention;
    }
    MeasuredAttention measured = measure_attention(stream, work, known);
    result.remembered_passes = measured.remembered;
    if (is_measured) to_remember.attention = {measured.choices};
    result.choices.attention = {std::move(measured.choices)};
  };
  if (!question.products) {
    with_attention();
    return result;
  }
  if (file) {
    const ProductChoices known = file->choices_of(product_library(stream));
    if (known.choices.empty()) result.instead.products = file->all().products;
    result.remembered_products = adopt_products(stream, known);
  }
  result.choices.products = {measure_products(stream, with_attention)};
  to_remember.products = result.choices.products;
  if (file) file->remember(to_remember);
  return result;
}

}  // namespace ranvier::models
