#include "models/generation/gpt_decoder.hpp"

#include "models/ops/attention.hpp"
#include "models/ops/cached_attention.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/layer_norm.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

AttentionShape prompt_shape(const GptOptions& options, std::size_t positions) {
  return {1, static_cast<int>(positions), options.heads, options.hidden / options.heads};
}

CachedAttentionShape cache_shape(const GptOptions& options, std::size_t queries, int past) {
  return {static_cast<int>(queries),      past,   options.sequence_length, options.heads,
          options.hidden / options.heads, nullptr};
}

}  // namespace

/// Weights of products are stored [out, in], so that one output's are one after another.
struct GptDecoder::Block {
  std::byte *ln_1_weight, *ln_1_bias, *c_attn_weight, *c_attn_bias, *attn_proj_weight, *attn_proj_bias;
  std::byte *ln_2_weight, *ln_2_bias, *c_fc_weight, *c_fc_bias, *mlp_proj_weight, *mlp_proj_bias;
};

GptDecoder::GptDecoder(runtime::Device& device, const GptOptions& options, const UnitSource& weights)
    : Decoder(device, options.precision.compute),
      options_(options),
      channels_(static_cast<std::size_t>(options.hidden)) {
  options_.tile = 1;
  options_.dropout = 0;
  options_.precision.gradient = dtype_;
  load(weights);
  const auto T = static_cast<std::size_t>(options.sequence_length);
  plan(
      {.context = options.sequence_length,
       .vocabulary = static_cast<std::size_t>(options.vocab_size),
       .channels = channels_,
       .blocks = blocks_.size(),
       .key_channels = channels_,
       .normal = channels_,
       .wide = 4 * channels_,
       .heads = static_cast<std::size_t>(options.heads),
       .scratch_bytes = std::max(attention_workspace_bytes(prompt_shape(options_, T), dtype_, device.threads()),
                                 cached_attention_workspace_bytes(cache_shape(options_, 1, 0), device.threads()))});
}

GptDecoder::~GptDecoder() = default;

void GptDecoder::load(const UnitSource& weights) {
  const Architecture gpt = make_gpt(options_);  // which checks the sizes
  const std::vector<UnitSpec> units = gpt.units();
  MemoryLayout layout;
  std::vector<std::size_t> offsets;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      offsets.push_back(layout.add(parameter.elements(), size_of(dtype_)));
      if (unit.name != "wpe") read_bytes_ += parameter.elements() * size_of(dtype_);
    }
  }
  weights_ = stream_->device().allocate(layout.bytes(), runtime::MemorySpace::device);

  auto offset = offsets.begin();
  for (const UnitSpec& unit : units) {
    const bool is_block = unit.name.starts_with("h.");
    std::vector<std::byte*> places;
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      places.push_back(weights_.data() + *offset++);
      load_parameter(unit, p, is_block && unit.parameters[p].shape.size() == 2, places.back(), weights);
    }
    if (unit.name == "wte") logit_table_ = tokens_table_ = places.at(0);
    if (unit.name == "wpe") positions_table_ = places.at(0);
    if (unit.name == "ln_f") {
      final_weight_ = places.at(0);
      final_bias_ = places.at(1);
    }
    if (!is_block) continue;
    expect(places.size() == 12, "unit {} has {} parameters, but a block has 12", unit.name, places.size());
    blocks_.push_back({places[0], places[1], places[2], places[3], places[4], places[5], places[6], places[7],
                       places[8], places[9], places[10], places[11]});
  }
}

void GptDecoder::embed(const std::int32_t* tokens, std::size_t rows, int past) {
  embedding_forward(*stream_, {1, rows, channels_, vocabulary()}, dtype_, x(), tokens, tokens_table_,
                    positions_table_ + static_cast<std::size_t>(past) * channels_ * size_of(dtype_));
}

void GptDecoder::compute_block(std::size_t index, const Tokens& tokens) {
  const Block& block = blocks_[index];
  const std::size_t rows = tokens.rows, C = channels_;
  CachedAttentionShape shape = cache_shape(options_, rows, tokens.past);
  shape.past_place = tokens.past_place;
  norm(block.ln_1_weight, block.ln_1_bias, rows, index == 0);
  product(wide(), normal(), block.c_attn_weight, block.c_attn_bias, rows, 3 * C, C);
  append_to_cache(*stream_, shape, dtype_, keys(index), values(index), wide());
  if (tokens.past == 0 && rows > 1) {
    attention_forward(*stream_, prompt_shape(options_, rows), dtype_, normal(), logsumexp(), wide(), Dropout{},
                      scratch());
  } else {
    cached_attention(*stream_, shape, dtype_, normal(), keys(index), values(index), wide(), scratch());
  }
  product(branch(), normal(), block.attn_proj_weight, block.attn_proj_bias, rows, C, C);
  norm(block.ln_2_weight, block.ln_2_bias, rows);
  product(wide(), normal(), block.c_fc_weight, block.c_fc_bias, rows, 4 * C, C);
  gelu_forward(*stream_, dtype_, wide(), wide(), rows * 4 * C);
  product(branch(), wide(), block.mlp_proj_weight, block.mlp_proj_bias, rows, C, 4 * C);
}

void GptDecoder::normalise(std::byte* y, const std::byte* weight, const std::byte* bias, const std::byte* x,
                           std::size_t rows, const std::byte* branch, std::byte* sum) {
  layer_norm_forward(*stream_, {rows, channels_}, dtype_,
                     {.y = y,
                      .mean = moments(0),
                      .rstd = moments(1),
                      .x = x,
                      .weight = weight,
                      .bias = bias,
                      .branch = branch,
                      .sum = sum});
}

}  // namespace ranvier::models
