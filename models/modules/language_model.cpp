#include "models/modules/language_model.hpp"

#include <utility>

namespace ranvier::models {

Architecture make_language_model(const LanguageModel& model, const Tuning& tuning) {
  Architecture architecture;
  architecture.name = model.name;
  architecture.positions = model.positions;
  architecture.precision = model.precision;
  architecture.layers.push_back(make_token_embedding(model.embedding, UnitBuilder(model.precision, tuning)));
  for (int i = 0; i < model.blocks; ++i) {
    UnitBuilder builder(model.precision, tuning);
    const TransformerBlockOptions block = model.block(i, builder);
    architecture.layers.push_back(make_transformer_block(block, std::move(builder)));
  }
  if (const auto* const head = std::get_if<LanguageHeadOptions>(&model.head)) {
    architecture.targets = head->targets;
    architecture.layers.push_back(make_language_head(*head, UnitBuilder(model.precision, tuning)));
  } else {
    architecture.layers.push_back(make_classification_head(std::get<ClassificationHeadOptions>(model.head),
                                                           UnitBuilder(model.precision, tuning)));
  }
  return architecture;
}

}  // namespace ranvier::models
