// The GPT-2 family (Radford et al. 2019): learned positions, pre-LayerNorm with eps 1e-5, causal multi-head
// attention, GELU (tanh form), biases, embedding and head tied. Parameter names and layouts are those of the
// Hugging Face checkpoints; linear weights are [in, out].
//
// Layers: one embedding, `layers` blocks, one head (final norm, logits, cross entropy). Units: "wte"
// (shared by embedding and head), "wpe", "h.0" …, "ln_f".
//
// With tiles (memory-centric tiling, ZeRO-Infinity §5.1.3) every matrix but wpe is cut into units of its own, which
// layers use part by part (Layer::parts), so that hardly more than one tile of each kind has to be whole at a time:
// "wte.0" … (rows), "h.0" (norms and biases), "h.0.attn.c_attn.0" … and "h.0.attn.c_proj.0" … (columns),
// "h.0.mlp.0" … (columns of c_fc and the rows of c_proj that go with them). Sums over tiles are in another order
// than those of the whole, in fp32; the values that a run begins with, and files, are the same for any number of
// tiles.
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
  int positions = 0;           ///< rows of wpe; those after the first T keep their values. 0: T
  float dropout = 0;           ///< of embeddings, attention weights and residual branches
  int tile = 1;                ///< tiles of each large product's weight, units of their own; divides hidden
  Precision precision;
  AttentionKernels attention = AttentionKernels::own;  ///< on a GPU
  bool fast_attention_backward = false;                ///< AttentionShape::fast_backward

  [[nodiscard]] int position_rows() const noexcept { return positions > 0 ? positions : sequence_length; }
};

/// "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"; "gpt-7b", as large as PaRO's smaller model; and Myelin's
/// Table I: "gpt-12b", "gpt-24b", "gpt-50b", "gpt-100b"; and of MiCS' Table 1 "gpt2-20b". Empty if there is none.
[[nodiscard]] std::optional<GptOptions> gpt_preset(std::string_view name);
[[nodiscard]] std::vector<std::string_view> gpt_preset_names();

/// Throws ErrorCode::usage for sizes that make no model (models/gpt_sizes.hpp), and where a part of a block is frozen.
[[nodiscard]] Architecture make_gpt(const GptOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
