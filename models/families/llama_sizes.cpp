#include "models/families/llama_sizes.hpp"

#include "models/core/size_checks.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace ranvier::models {
namespace {

constexpr int max_heads = 1 << 20;  // the number of channels still fits 32 bits

}  // namespace

std::optional<std::string> size_problem(const LlamaOptions& options, const LlamaSizeNames& names) {
  if (auto problem = min_problem(1, {{names.layers, options.layers},
                                     {names.hidden, options.hidden},
                                     {names.heads, options.heads},
                                     {names.inner, options.inner},
                                     {names.vocab_size, options.vocab_size},
                                     {names.sequence_length, options.sequence_length},
                                     {names.tile, options.tile}}))
    return problem;
  if (auto problem = min_problem(0, {{names.key_heads, options.key_heads},
                                     {names.head_size, options.head_size},
                                     {names.window, options.window}}))
    return problem;
  if (options.heads > max_heads)
    return fmt::format("{} is too large: {}; use at most {}", names.heads, options.heads, max_heads);
  if (options.head_size == 0 && options.hidden % options.heads != 0)
    return fmt::format("{} {} does not divide {} {}; use a divisor such as {}, or add {}", names.heads,
                       options.heads, names.hidden, options.hidden, divisor_near(options.heads, options.hidden),
                       names.head_size);
  if (options.stored_head_size() % 2 != 0)
    return fmt::format("rotary embeddings need an even number of channels per head: {}; use an even {}",
                       options.stored_head_size(), names.head_size);
  if (options.stored_head_size() > RotaryFrequencies::max_channels)
    return fmt::format("heads have too many channels for rotary embeddings: {}, at most {}; use a smaller {}",
                       options.stored_head_size(), RotaryFrequencies::max_channels, names.head_size);
  if (auto problem = divisor_problem({names.key_heads, options.stored_key_heads()}, {names.heads, options.heads}))
    return problem;
  const std::int64_t qkv = (std::int64_t{options.heads} + 2 * std::int64_t{options.stored_key_heads()}) *
                           std::int64_t{options.stored_head_size()};
  return tile_problem(names.tile, options.tile,
                      {{fmt::format("{} {}", names.hidden, options.hidden), options.hidden},
                       {fmt::format("{} {}", names.inner, options.inner), options.inner},
                       {fmt::format("the {} channels of queries, keys and values", qkv), qkv}});
}

std::string_view llama_family(const LlamaOptions& options) noexcept {
  if (options.qk_norm) return "qwen3";
  if (options.qkv_bias && !options.out_bias) return "qwen2";
  return options.window > 0 ? "mistral" : "llama";
}

}  // namespace ranvier::models
