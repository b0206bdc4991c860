// Layers of a model of any family. Programs that only read files do not need them.
#include "models/core/lora.hpp"
#include "models/families/model.hpp"
#include "models/modules/language_model.hpp"

namespace ranvier::models {
namespace {

/// The layers of a model. Throws like expect_sizes(); `tuning` is not checked, see make_model().
template <ModelFamily Options>
Architecture make_layers(const Options& options, const Tuning& tuning) {
  expect_sizes(options);
  if constexpr (requires { options.language_model(); }) {
    return make_language_model(options.language_model(), tuning);
  } else {
    return options.make(tuning);
  }
}

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

Architecture make_gpt(const GptOptions& options, const Tuning& tuning) { return make_layers(options, tuning); }
Architecture make_llama(const LlamaOptions& options, const Tuning& tuning) { return make_layers(options, tuning); }
Architecture make_bert(const BertOptions& options, const Tuning& tuning) { return make_layers(options, tuning); }
Architecture make_resnet(const ResnetOptions& options, const Tuning& tuning) {
  return make_layers(options, tuning);
}

Architecture make_model(const ModelSizes& sizes, const Tuning& tuning) {
  if (tuning.lora && !default_adapters(sizes)) {
    const std::string& origin = tuning.lora->origin;
    fail(ErrorCode::usage, "{}: models of the family {} do not support adapters; {}",
         origin.empty() ? "`lora_rank`" : origin, family_name(sizes),
         origin.empty() ? "use a text model, or `train` REGEX" : "use the weights of their base model");
  }
  Architecture model = std::visit([&](const auto& family) { return make_layers(family, tuning); }, sizes);
  if (tuning.lora) {
    expect_targets(model, *tuning.lora);
    expect_whole(model, *tuning.lora, tells_classes(sizes));
  }
  expect_trained(model, tuning);
  return model;
}

std::optional<AttentionShape> attention_shape(const ModelSizes& sizes) {
  return std::visit(
      [](const auto& options) -> std::optional<AttentionShape> {
        UnitBuilder builder(options.precision);
        if constexpr (requires { options.language_model(); })
          return options.language_model().block(0, builder).attention.shape;
        return std::nullopt;
      },
      sizes);
}

LanguageModel decoder_model(const ModelSizes& sizes) {
  expect(task_of(sizes) == Task::next_token, "a model that writes no text has no decoder");
  return std::visit(
      [](const auto& options) -> LanguageModel {
        if constexpr (requires { options.language_model(); })
          return model_for_text(options);
        else
          fail(ErrorCode::internal, "{} is not a language model", options.family());
      },
      sizes);
}

}  // namespace ranvier::models
