#include "models/families/llama.hpp"

#include "models/core/expect_sizes.hpp"
#include "models/families/llama_layers.hpp"
#include "models/families/llama_sizes.hpp"
#include "models/modules/language_head.hpp"
#include "models/modules/token_embedding.hpp"

#include <fmt/format.h>

namespace ranvier::models {
namespace {

TokenTable token_table(const LlamaOptions& options, const char* unit) {
  return TokenTable({.name = unit,
                     .tokens = static_cast<std::size_t>(options.vocab_size),
                     .channels = static_cast<std::size_t>(options.hidden),
                     .tiles = static_cast<std::size_t>(options.tile),
                     .initializer = llama_initializer(options)});
}

}  // namespace

Architecture make_llama(const LlamaOptions& options, const Tuning& tuning) {
  expect_sizes(options);
  const TokenTable words = token_table(options, "model.embed_tokens");
  Architecture llama;
  llama.name =
      fmt::format("{} {} × {}, {} heads", llama_family(options), options.layers, options.hidden, options.heads);
  llama.positions = options.sequence_length;
  llama.precision = options.precision;
  llama.layers.push_back(make_token_embedding({.table = words, .precision = options.precision}, tuning));
  for (int i = 0; i < options.layers; ++i) llama.layers.push_back(make_llama_block(options, i, tuning));
  llama.layers.push_back(make_language_head({.table = options.tied ? words : token_table(options, "lm_head"),
                                             .norm_name = "model.norm",
                                             .norm = llama_norm(options),
                                             .precision = options.precision},
                                            tuning));
  return llama;
}

}  // namespace ranvier::models
