// The GPT-2 family (Radford et al. 2019): learned positions, pre-LayerNorm with eps 1e-5, causal multi-head
// attention, GELU (tanh form), biases, embedding and head tied. Parameter names and layouts are those of the
// Hugging Face checkpoints; linear weights are [in, out].
//
// Layers: one embedding, `layers` blocks, one head (final norm, logits, cross entropy). Units: "wte"
// (shared by embedding and head), "wpe", "h.0" …, "ln_f".
//
// With tiles (memory-centric tiling, ZeRO-Infinity §5.1.3) every matrix except wpe is split into separate units,
// which layers access in phases (Layer::parts), so little more than one tile of each kind is needed at a time:
// "wte.0" … (rows), "h.0" (norms and biases), "h.0.attn.c_attn.0" … and "h.0.attn.c_proj.0" … (columns), "h.0.mlp.0"
// … (columns of c_fc and the matching rows of c_proj). The order of fp32 sums depends on the number of tiles; initial
// values and files do not.
#pragma once

#include "models/architecture.hpp"
#include "models/ops/attention.hpp"
#include "models/tuning.hpp"

#include <optional>
#include <string_view>

namespace ranvier::models {

struct GptOptions {
  int layers = 12;
  int hidden = 768;            ///< C
  int heads = 12;              ///< H
  int vocab_size = 50257;      ///< V; stored rows are a multiple of 64, the extra ones are never predicted
  int sequence_length = 1024;  ///< T
  int positions = 0;           ///< rows of wpe; those after the first T stay unchanged. 0: T
  float dropout = 0;           ///< dropout rate of embeddings, attention weights and residual branches
  int tile = 1;                ///< tiles of each large matrix, as separate units; divides hidden
  Precision precision;
  AttentionKernels attention = AttentionKernels::own;  ///< on a GPU
  bool fast_attention_backward = false;                ///< AttentionShape::fast_backward

  [[nodiscard]] int position_rows() const noexcept { return positions > 0 ? positions : sequence_length; }
};

/// "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"; "gpt-7b" (PaRO's smaller model); Myelin's Table I:
/// "gpt-12b", "gpt-24b", "gpt-50b", "gpt-100b"; MiCS' Table 1: "gpt2-20b". None if unknown.
[[nodiscard]] std::optional<GptOptions> gpt_preset(std::string_view name);
[[nodiscard]] std::vector<std::string_view> gpt_preset_names();

/// Throws ErrorCode::usage for invalid sizes (models/gpt_sizes.hpp), and for a partly frozen block.
[[nodiscard]] Architecture make_gpt(const GptOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
