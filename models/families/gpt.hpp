// GPT-2 family (Radford et al. 2019): learned positions, pre-LayerNorm with eps 1e-5, causal multi-head attention, GELU
// (tanh form), biases, embedding and head tied. Parameters have the names and layouts of Hugging Face checkpoints;
// linear weights are [in, out].
#pragma once

#include "models/families/family.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
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

  static constexpr bool inputs_first = true;

  bool operator==(const GptOptions&) const = default;

  [[nodiscard]] int position_rows() const noexcept { return positions > 0 ? positions : sequence_length; }

  // The family; see ModelFamily.
  static std::span<const SizeField<GptOptions>> sizes();
  /// "gpt" with the user's sizes; "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"; "gpt-7b" (PaRO's smaller
  /// model); Myelin's Table I: "gpt-12b", "gpt-24b", "gpt-50b", "gpt-100b"; MiCS' Table 1: "gpt2-20b".
  static std::span<const NamedSizes<GptOptions>> named();
  [[nodiscard]] std::string_view family() const { return "gpt2"; }
  [[nodiscard]] Task task() const { return Task::next_token; }
  [[nodiscard]] std::optional<std::string> problem(const SizeNames& names) const;
  void derive(bool heads_given, bool ffn_size_given);
  [[nodiscard]] std::string computation() const { return "gpt2"; }
  [[nodiscard]] std::optional<AdapterModules> adapters() const { return AdapterModules{{"c_attn"}}; }
  static constexpr std::array<std::string_view, 1> model_types{"gpt2"};
  static FamilyConfig<GptOptions> read(const ConfigFile& config);
  [[nodiscard]] std::string config_json(const std::string& like) const;
  /// From the shapes of tensors; the number of heads comes from `config` or is `heads`. Throws ErrorCode::data if
  /// tensors and config contradict each other, and ErrorCode::usage if the number of heads is unknown.
  static std::optional<GptOptions> stored(const Safetensors& weights, const GptOptions* config,
                                          std::optional<int> heads);
  [[nodiscard]] LanguageModel language_model() const;
};

/// Layers: one embedding, `layers` blocks, one head (final norm, logits, cross entropy). Units: "wte" (shared by
/// embedding and head), "wpe", "h.0" …, "ln_f". Throws ErrorCode::usage for invalid sizes.
///
/// Tiles (ZeRO-Infinity §5.1.3) split every matrix except wpe into separate units: "wte.0" …, "h.0.attn.c_attn.0" …,
/// "h.0.mlp.0" …. Norms and biases stay in "h.0". Layers access tiles in phases (Layer::parts), so little more than one
/// tile of each kind is in memory at a time. The number of tiles changes the order of fp32 sums, but not initial values
/// or files.
[[nodiscard]] Architecture make_gpt(const GptOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
