#include "models/families/decoder_model.hpp"

#include "models/families/gpt_layers.hpp"
#include "models/families/llama_layers.hpp"
#include "runtime/base/error.hpp"

#include <type_traits>
#include <variant>

namespace ranvier::models {
namespace {

/// `options` without settings of training.
template <typename Options>
Options for_text(Options options) {
  options.tile = 1;
  options.precision.gradient = options.precision.compute;
  return options;
}

/// Description without the names of tables and norm. `block(i, builder)`: options of a block.
template <typename Options, typename BlockOptions>
DecoderModel model_of(const Options& options, const Architecture& architecture, const BlockOptions& block) {
  DecoderModel model{.context = options.sequence_length,
                     .vocabulary = static_cast<std::size_t>(options.vocab_size),
                     .units = architecture.units()};
  for (int i = 0; i < options.layers; ++i) {
    UnitBuilder builder;
    model.blocks.push_back(block(i, builder));
  }
  model.norm = model.blocks.front().norm;
  return model;
}

}  // namespace

DecoderModel decoder_model(const GptOptions& training) {
  GptOptions options = for_text(training);
  options.dropout = 0;
  DecoderModel model = model_of(options, make_gpt(options), [&](int i, UnitBuilder& builder) {
    return gpt_block_options(options, i, builder);
  });
  model.words = model.head = "wte";
  model.positions = "wpe";
  model.last_norm = "ln_f";
  return model;
}

DecoderModel decoder_model(const LlamaOptions& training) {
  const LlamaOptions options = for_text(training);
  DecoderModel model = model_of(options, make_llama(options), [&](int i, UnitBuilder& builder) {
    return llama_block_options(options, i, builder);
  });
  model.words = "model.embed_tokens";
  model.head = options.tied ? model.words : "lm_head";
  model.last_norm = "model.norm";
  return model;
}

DecoderModel decoder_model(const ModelSizes& sizes) {
  return std::visit(
      [](const auto& options) -> DecoderModel {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, GptOptions> || std::is_same_v<Options, LlamaOptions>) {
          return decoder_model(options);
        } else {
          fail(ErrorCode::internal, "a model that writes no text has no decoder");
        }
      },
      sizes);
}

}  // namespace ranvier::models
