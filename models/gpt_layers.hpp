// The three kinds of layers that GPT-2 is made of. See gpt.hpp for the whole.
#pragma once

#include "models/gpt.hpp"
#include "models/layer.hpp"
#include "models/parts/layer_call.hpp"
#include "models/parts/token_table.hpp"

#include <memory>
#include <vector>

namespace ranvier::models {

/// Tokens (int32 [B, T]) to activations [B, T, C]. Units "wte" or its tiles, "wpe".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options, const Tuning& tuning = {});

/// One transformer block: [B, T, C] to [B, T, C]. Unit "h.<index>". Trained or frozen as a whole.
[[nodiscard]] std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index,
                                                    const Tuning& tuning = {});

/// The same with its matrices in options.tile > 1 tiles, in parts of one tile each.
[[nodiscard]] std::unique_ptr<Layer> make_tiled_gpt_block(const GptOptions& options, int index,
                                                          const Tuning& tuning = {});

/// Final norm, logits and cross entropy against targets (int32 [B, T]). Units "wte" or its tiles, "ln_f".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_head(const GptOptions& options, const Tuning& tuning = {});

/// The table that embedding and head share.
struct GptTokenTable : TokenTable {
  explicit GptTokenTable(const GptOptions& options);
};

/// The unit of a whole block: parameters in the order of the checkpoint, a matrix before its bias.
[[nodiscard]] UnitSpec gpt_block_unit(const GptOptions& options, int index);

/// Floating-point operations per sample of a block; see Layer.
[[nodiscard]] double gpt_block_flops(const GptOptions& options, int positions);

/// Copies a norm's weight and bias, of so many bytes each, to [2, C]: for what is computed after they were given up.
/// One copy where they follow each other, which is where a GPU launches the less.
void keep_norm_parameters(runtime::StreamView stream, std::byte* to, const std::byte* weight, const std::byte* bias,
                          std::size_t bytes);

/// Stores the call's gradients of a norm's weight and bias, [C] each, or adds to them, from `sums` [2, C]; likewise.
void store_norm_gradient(const LayerCall& call, runtime::DType dtype, std::byte* weight, std::byte* bias,
                         const float* sums, std::size_t channels);

/// Numbers of the places that drop, for make_dropout: no two alike.
enum class GptDropoutPlace : std::uint32_t { attention, attention_branch, mlp_branch };
inline constexpr std::uint32_t gpt_embedding_dropout_site = 0;
[[nodiscard]] constexpr std::uint32_t gpt_dropout_site(int block, GptDropoutPlace place) {
  return 1 + 3 * static_cast<std::uint32_t>(block) + static_cast<std::uint32_t>(place);
}

}  // namespace ranvier::models
