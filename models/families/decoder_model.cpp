#include "models/families/decoder_model.hpp"

#include "models/modules/language_model.hpp"
#include "runtime/base/error.hpp"

#include <variant>

namespace ranvier::models {
namespace {

/// `options` without settings of training.
template <typename Options>
LanguageModel model_for_text(Options options) {
  if constexpr (requires { options.dropout; }) options.dropout = 0;
  options.tile = 1;
  options.precision.gradient = options.precision.compute;
  expect_sizes(options);
  return options.language_model();
}

}  // namespace

DecoderModel decoder_model(const ModelSizes& sizes) {
  expect(task_of(sizes) == Task::next_token, "a model that writes no text has no decoder");
  const LanguageModel model = std::visit(
      [](const auto& options) -> LanguageModel {
        if constexpr (requires { options.language_model(); })
          return model_for_text(options);
        else
          fail(ErrorCode::internal, "{} is not a language model", options.family());
      },
      sizes);
  const TokenEmbeddingOptions& embedding = model.embedding;
  const auto& head = std::get<LanguageHeadOptions>(model.head);
  expect(!embedding.types && embedding.norm_name.empty() && embedding.first_position == 0,
         "{}: a decoder adds only tokens and positions", model.name);
  DecoderModel decoder{.context = model.positions,
                       .vocabulary = embedding.table.tokens,
                       .units = make_language_model(model).units(),
                       .norm = head.norm,
                       .words = embedding.table.units.front().name,
                       .positions = {},
                       .last_norm = head.norm_name,
                       .head = head.table.units.front().name};
  if (embedding.positions)
    decoder.positions = embedding.positions->name.substr(0, embedding.positions->name.rfind('.'));
  for (int i = 0; i < model.blocks; ++i) {
    UnitBuilder builder;
    decoder.blocks.push_back(model.block(i, builder));
  }
  return decoder;
}

}  // namespace ranvier::models
