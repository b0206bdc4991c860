#include "models/families/gpt.hpp"

#include "models/core/expect_sizes.hpp"
#include "models/families/gpt_layers.hpp"
#include "models/families/gpt_sizes.hpp"
#include "models/modules/block_dropout.hpp"
#include "models/modules/language_head.hpp"
#include "models/modules/token_embedding.hpp"

#include <array>

namespace ranvier::models {
namespace {

struct Preset {
  std::string_view name;
  int layers;
  int hidden;
  int heads;
  int vocab_size;
  int sequence_length;
};

constexpr std::array presets = {
    Preset{"gpt2-small", 12, 768, 12, 50257, 1024},  Preset{"gpt2-medium", 24, 1024, 16, 50257, 1024},
    Preset{"gpt2-large", 36, 1280, 20, 50257, 1024}, Preset{"gpt2-xl", 48, 1600, 25, 50257, 1024},
    Preset{"gpt-7b", 32, 4096, 32, 50257, 2048},     Preset{"gpt-12b", 48, 4512, 24, 51200, 512},
    Preset{"gpt-24b", 48, 6336, 36, 51200, 512},     Preset{"gpt-50b", 96, 6528, 48, 51200, 512},
    Preset{"gpt-100b", 96, 9360, 60, 51200, 512},    Preset{"gpt2-20b", 62, 5120, 40, 50265, 512},
};

}  // namespace

std::optional<GptOptions> gpt_preset(std::string_view name) {
  for (const Preset& preset : presets) {
    if (preset.name != name) continue;
    GptOptions options;
    options.layers = preset.layers;
    options.hidden = preset.hidden;
    options.heads = preset.heads;
    options.vocab_size = preset.vocab_size;
    options.sequence_length = preset.sequence_length;
    return options;
  }
  return std::nullopt;
}

std::vector<std::string_view> gpt_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) names.push_back(preset.name);
  return names;
}

Architecture make_gpt(const GptOptions& options, const Tuning& tuning) {
  expect_sizes(options);
  Architecture gpt;
  gpt.name = fmt::format("gpt {} × {}, {} heads", options.layers, options.hidden, options.heads);
  gpt.positions = options.sequence_length;
  gpt.precision = options.precision;
  gpt.layers.push_back(make_gpt_embedding(options, tuning));
  for (int i = 0; i < options.layers; ++i) gpt.layers.push_back(make_gpt_block(options, i, tuning));
  gpt.layers.push_back(make_gpt_head(options, tuning));
  return gpt;
}

GptTokenTable::GptTokenTable(const GptOptions& options)
    : TokenTable({.name = "wte",
                  .tokens = static_cast<std::size_t>(options.vocab_size),
                  .channels = static_cast<std::size_t>(options.hidden),
                  .tiles = static_cast<std::size_t>(options.tile),
                  .initializer = {Initializer::Kind::normal, 0.02f}}) {}

std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options, const Tuning& tuning) {
  const auto channels = static_cast<std::size_t>(options.hidden);
  const auto rows = static_cast<std::size_t>(options.position_rows());
  const ParameterSpec positions{
      .name = "wpe.weight",
      .shape = {rows, channels},
      .initializer = {Initializer::Kind::normal, 0.02f},
      .decays = true,
      .undecayed_end = (rows - static_cast<std::size_t>(options.sequence_length)) * channels};
  return make_token_embedding({.table = GptTokenTable(options),
                               .positions = UnitSpec{"wpe", {positions}},
                               .dropout = options.dropout,
                               .dropout_site = embedding_dropout_site,
                               .precision = options.precision},
                              tuning);
}

std::unique_ptr<Layer> make_gpt_head(const GptOptions& options, const Tuning& tuning) {
  return make_language_head({.table = GptTokenTable(options),
                             .norm_name = "ln_f",
                             .norm = gpt_norm(options),
                             .precision = options.precision},
                            tuning);
}

}  // namespace ranvier::models
