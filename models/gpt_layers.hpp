// The three kinds of layers that GPT-2 is made of. See gpt.hpp for the whole.
#pragma once

#include "models/gpt.hpp"
#include "models/layer.hpp"

#include <memory>

namespace ranvier::models {

/// Tokens (int32 [B, T]) to activations [B, T, C]. Units "wte", "wpe".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options);

/// One transformer block: [B, T, C] to [B, T, C]. Unit "h.<index>".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index);

/// Final norm, logits and cross entropy against targets (int32 [B, T]). Units "wte", "ln_f".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_head(const GptOptions& options);

/// The table that embedding and head share; both declare it with these words.
[[nodiscard]] UnitSpec gpt_token_table(const GptOptions& options);

/// Rows of the token table as stored: V up to the next multiple of 64.
[[nodiscard]] std::size_t gpt_stored_rows(const GptOptions& options);

/// Throws ErrorCode::internal if the device has more threads than the call's memory is laid out for.
void expect_planned_threads(const LayerCall& call, const std::string& layer);

/// Numbers of the places that drop, for make_dropout: no two alike.
enum class GptDropoutPlace : std::uint32_t { attention, attention_branch, mlp_branch };
inline constexpr std::uint32_t gpt_embedding_dropout_site = 0;
[[nodiscard]] constexpr std::uint32_t gpt_dropout_site(int block, GptDropoutPlace place) {
  return 1 + 3 * static_cast<std::uint32_t>(block) + static_cast<std::uint32_t>(place);
}

}  // namespace ranvier::models
