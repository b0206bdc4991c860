// Low-rank adapters (LoRA, Hu et al. 2021) as in PEFT, added to a frozen matrix:
//
//   y += alpha / rank · B(A(dropout(x)))        A [rank, I], B [O, rank], initially zero
//
// Names of parameters are PEFT's without "base_model.model.": "….q_proj.lora_A.weight". Plain data; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

inline constexpr int max_lora_rank = 1 << 16;

struct LoraOptions {
  int rank = 8;
  float alpha = 8;
  float dropout = 0;                    ///< dropout rate of an adapter's input in training
  std::vector<std::string> targets;     ///< modules by the last parts of their names: "q_proj", "self_attn.q_proj"
  std::vector<std::string> whole = {};  ///< fully trained modules of a classification head, named in the same way
  std::string origin = {};              ///< file of these options, for errors; empty: flags

  [[nodiscard]] float factor() const noexcept { return alpha / static_cast<float>(rank); }
  /// Whether a module of this name gets an adapter.
  [[nodiscard]] bool adapts(std::string_view module) const;
  /// Whether a parameter of this name is trained: an adapter's, or one of a module in `whole`.
  [[nodiscard]] bool trains(std::string_view parameter) const;
};

/// "v_proj,q_proj" as names in order, each once; empty if one of them is.
[[nodiscard]] std::vector<std::string> parse_targets(std::string_view text);
/// Targets are a set.
void sort_targets(std::vector<std::string>& targets);

/// Whether this parameter belongs to an adapter.
[[nodiscard]] bool is_adapter(std::string_view parameter);

/// Names of an adapter's two matrices.
[[nodiscard]] inline std::string lora_a(const std::string& module) { return module + ".lora_A.weight"; }
[[nodiscard]] inline std::string lora_b(const std::string& module) { return module + ".lora_B.weight"; }

}  // namespace ranvier::models
