// Low-rank adapters (LoRA, Hu et al. 2021) as PEFT has them: beside a frozen product
//
//   y += alpha / rank · B(A(dropout(x)))        A [rank, I], B [O, rank], which is zero at first
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
  float dropout = 0;                    ///< share of an adapter's input dropped in training
  std::vector<std::string> targets;     ///< modules by the last parts of their names: "q_proj", "self_attn.q_proj"
  std::vector<std::string> whole = {};  ///< modules of a head for classes, trained as they are; named likewise
  std::string origin = {};              ///< the file that says all this, for errors; empty: flags do

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

/// Whether a parameter of this name is an adapter's.
[[nodiscard]] bool is_adapter(std::string_view parameter);

/// Names of an adapter's two matrices.
[[nodiscard]] inline std::string lora_a(const std::string& module) { return module + ".lora_A.weight"; }
[[nodiscard]] inline std::string lora_b(const std::string& module) { return module + ".lora_B.weight"; }

}  // namespace ranvier::models
