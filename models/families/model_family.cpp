// Functions of a model's family that need no layers, for programs that only read files.
#include "models/families/bert_sizes.hpp"
#include "models/families/llama_sizes.hpp"
#include "models/families/model.hpp"

namespace ranvier::models {

std::string_view family_name(const ModelSizes& sizes) noexcept {
  if (const auto* const bert = std::get_if<BertOptions>(&sizes)) return bert_family(*bert);
  if (reads_images(sizes)) return "wide-resnet";
  const auto* const llama = std::get_if<LlamaOptions>(&sizes);
  return llama == nullptr ? "gpt2" : llama_family(*llama);
}

bool fills_masks(const ModelSizes& sizes) noexcept {
  const auto* const bert = std::get_if<BertOptions>(&sizes);
  return bert != nullptr && !bert->classifies();
}

bool tells_classes(const ModelSizes& sizes) noexcept {
  const auto* const bert = std::get_if<BertOptions>(&sizes);
  return bert != nullptr && bert->classifies();
}

bool reads_images(const ModelSizes& sizes) noexcept { return std::holds_alternative<ResnetOptions>(sizes); }

bool learns_positions(const ModelSizes& sizes) noexcept { return !std::holds_alternative<LlamaOptions>(sizes); }

bool stores_inputs_first(const ModelSizes& sizes) noexcept { return std::holds_alternative<GptOptions>(sizes); }

}  // namespace ranvier::models
