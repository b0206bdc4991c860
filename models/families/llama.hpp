// LLaMA family (Touvron et al. 2023): LLaMA 1, 2 and 3, Mistral (sliding window), Qwen2 (biases of queries, keys and
// values), Qwen3 (norms of queries and keys) and Phi-3 (fused tensors). Pre-RMSNorm, rotary positions, grouped-query
// attention, SwiGLU, no other biases. Parameters have the names and layouts of Hugging Face checkpoints; linear weights
// are [out, in].
#pragma once

#include "models/families/family.hpp"
#include "models/ops/rotary.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ranvier::models {

struct LlamaOptions {
  int layers = 32;
  int hidden = 4096;           ///< C
  int heads = 32;              ///< H, query heads
  int key_heads = 0;           ///< K, key and value heads; divides heads. 0: heads
  int head_size = 0;           ///< D, even. 0: hidden / heads
  int inner = 11008;           ///< F, inner width of the MLP
  int vocab_size = 32000;      ///< V; stored rows are a multiple of 64, the extra ones are never predicted
  int sequence_length = 2048;  ///< T
  float norm_epsilon = 1e-5f;
  double rope_base = 10000;
  std::optional<RopeScaling> rope_scaling;
  int window = 0;                   ///< sliding attention window in tokens, current one included; 0: all (Mistral)
  bool qkv_bias = false;            ///< Qwen2
  bool out_bias = false;            ///< bias of attention's output: LLaMA's attention_bias sets both
  bool qk_norm = false;             ///< RMSNorm of each head's queries and keys, before rotation (Qwen3)
  bool fused = false;               ///< one tensor for queries, keys and values, and one for gate and up (Phi-3)
  bool tied = false;                ///< head and embedding share a table
  float initializer_range = 0.02f;  ///< standard deviation of initial matrices
  int tile = 1;                     ///< like GptOptions::tile; also divides inner and (H + 2K)·D
  Precision precision;
  AttentionKernels attention = AttentionKernels::own;  ///< on a GPU
  bool fast_attention_backward = false;                ///< AttentionShape::fast_backward

  bool operator==(const LlamaOptions&) const = default;
  [[nodiscard]] int stored_key_heads() const noexcept { return key_heads > 0 ? key_heads : heads; }
  [[nodiscard]] int stored_head_size() const noexcept { return head_size > 0 ? head_size : hidden / heads; }

  // The family; see ModelFamily.
  static std::span<const SizeField<LlamaOptions>> sizes();
  /// "llama", "mistral", "qwen2", "qwen3", "phi3" with the user's sizes; "llama-7b" … "llama-65b", "llama2-7b" …
  /// "llama2-70b", "llama3-8b" … "llama3.2-3b", "mistral-7b", "qwen2-0.5b" … "qwen3-8b", "phi3-mini".
  static std::span<const NamedSizes<LlamaOptions>> named();
  [[nodiscard]] std::string_view family() const;
  [[nodiscard]] Task task() const { return Task::next_token; }
  [[nodiscard]] std::optional<std::string> problem(const SizeNames& names) const;
  void derive(bool heads_given, bool ffn_size_given);
  [[nodiscard]] std::string computation() const;
  [[nodiscard]] std::optional<AdapterModules> adapters() const;
  static constexpr std::array<std::string_view, 5> model_types{"llama", "mistral", "qwen2", "qwen3", "phi3"};
  static FamilyConfig<LlamaOptions> read(const ConfigFile& config);
  [[nodiscard]] std::string config_json(const std::string& like) const;
  /// key_heads and head_size as explicit numbers.
  void set_all_sizes();
  [[nodiscard]] LanguageModel language_model() const;
};

/// Layers: one embedding, `layers` blocks, one head (final norm, logits, cross entropy). Units: "model.embed_tokens",
/// "model.layers.0" …, "model.norm", and "lm_head" unless embedding and head are tied. Throws ErrorCode::usage for
/// invalid sizes.
///
/// Tiles (see make_gpt()) split all matrices into separate units: "model.embed_tokens.0" …, "lm_head.0" …,
/// "model.layers.0.self_attn.qkv_proj.0" … (rows of the three matrices in order),
/// "model.layers.0.self_attn.o_proj.0" …, "model.layers.0.mlp.0" … (rows of gate_proj and up_proj, matching columns of
/// down_proj). Norms, biases and adapters stay in one unit per block.
[[nodiscard]] Architecture make_llama(const LlamaOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
