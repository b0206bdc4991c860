#include "models/gpt.hpp"

#include "models/gpt_layers.hpp"
#include "models/gpt_sizes.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"

#include <algorithm>
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
    Preset{"gpt-100b", 96, 9360, 60, 51200, 512},
};

void check(const GptOptions& options) {
  if (const auto problem = size_problem(options)) fail(ErrorCode::usage, "{}", *problem);
  const Precision& precision = options.precision;
  expect(precision.gradient == runtime::DType::f32 || precision.gradient == precision.compute,
         "gradients are fp32 or of the compute type");
}

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

Architecture make_gpt(const GptOptions& options) {
  check(options);
  Architecture gpt;
  gpt.name = fmt::format("gpt {} × {}, {} heads", options.layers, options.hidden, options.heads);
  gpt.positions = options.sequence_length;
  gpt.precision = options.precision;
  gpt.layers.push_back(make_gpt_embedding(options));
  for (int i = 0; i < options.layers; ++i) {
    gpt.layers.push_back(options.tile == 1 ? make_gpt_block(options, i) : make_tiled_gpt_block(options, i));
  }
  gpt.layers.push_back(make_gpt_head(options));
  return gpt;
}

void expect_planned_threads(const LayerCall& call, const std::string& layer) {
  expect(call.stream.device().threads() <= call.shape.threads,
         "{}: memory is laid out for {} threads, but the device has {}: set MicrobatchShape::threads", layer,
         call.shape.threads, call.stream.device().threads());
}

GptTokenTable::GptTokenTable(const GptOptions& options) {
  constexpr std::size_t multiple = 64;
  const auto vocab_size = static_cast<std::size_t>(options.vocab_size);
  const auto channels = static_cast<std::size_t>(options.hidden);
  const auto wanted = static_cast<std::size_t>(options.tile);
  tile_rows = ((vocab_size + wanted - 1) / wanted + multiple - 1) / multiple * multiple;
  for (std::size_t first = 0; first < vocab_size; first += tile_rows) {
    const bool whole = options.tile == 1;
    ParameterSpec rows{"wte.weight",
                       {std::min(tile_rows, vocab_size - first), channels},
                       {Initializer::Kind::normal, 0.02f},
                       true,
                       tile_rows * channels};
    if (!whole) rows.tile = Tile{{vocab_size, channels}, first, 0};
    units.push_back({whole ? "wte" : fmt::format("wte.{}", units.size()), {std::move(rows)}});
  }
}

}  // namespace ranvier::models
