#include "models/llama_sizes.hpp"

#include "models/gpt_sizes.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

namespace ranvier::models {
namespace {

constexpr int most_heads = 1 << 20;  // whose channels still count in 32 bits

}  // namespace

std::optional<std::string> size_problem(const LlamaOptions& options, const LlamaSizeNames& names) {
  for (const auto& [name, value] : {std::pair{names.layers, options.layers},
                                    {names.hidden, options.hidden},
                                    {names.heads, options.heads},
                                    {names.inner, options.inner},
                                    {names.vocab_size, options.vocab_size},
                                    {names.sequence_length, options.sequence_length},
                                    {names.tile, options.tile}}) {
    if (value < 1) return fmt::format("{} is {}: it must be at least 1", name, value);
  }
  for (const auto& [name, value] : {std::pair{names.key_heads, options.key_heads},
                                    {names.head_size, options.head_size},
                                    {names.window, options.window}}) {
    if (value < 0) return fmt::format("{} is {}: it must be at least 0", name, value);
  }
  if (options.heads > most_heads)
    return fmt::format("{} is {}: at most {} are possible", names.heads, options.heads, most_heads);
  if (options.head_size == 0 && options.hidden % options.heads != 0)
    return fmt::format("{} {} does not divide {} {}: choose a divisor such as {}, or give {}", names.heads,
                       options.heads, names.hidden, options.hidden, divisor_near(options.heads, options.hidden),
                       names.head_size);
  if (options.stored_head_size() % 2 != 0)
    return fmt::format("heads of {} channels cannot be rotated, which takes pairs: choose an even {}",
                       options.stored_head_size(), names.head_size);
  if (options.stored_head_size() > RotaryFrequencies::most_channels)
    return fmt::format("heads of {} channels are more than the {} that can be rotated: choose a smaller {}",
                       options.stored_head_size(), RotaryFrequencies::most_channels, names.head_size);
  if (options.heads % options.stored_key_heads() != 0)
    return fmt::format("{} {} does not divide {} {}: choose a divisor such as {}", names.key_heads,
                       options.key_heads, names.heads, options.heads,
                       divisor_near(options.key_heads, options.heads));
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
