// Names of ranvier-train's flags in other programs (PyTorch's and Hugging Face's trainers, Megatron-LM, DeepSpeed,
// nanoGPT), for messages about unknown flags. Pure functions, callable from any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ranvier::apps {

struct OtherName {
  std::string_view name;         ///< without dashes before it, and with dashes for underscores
  std::string_view flag;         ///< the flag of ranvier-train; empty: none
  std::string_view value = {};   ///< the value of that flag; empty: as given
  std::string_view remedy = {};  ///< if there is no flag
};

[[nodiscard]] std::span<const OtherName> other_names();

/// "did you mean --precision bf16?" for "bf16", or "did you mean precision = bf16?" if it is a key of a config file.
/// Underscores count as dashes. None: not in the table.
[[nodiscard]] std::optional<std::string> advice_on_other_name(std::string_view name, bool is_key);

}  // namespace ranvier::apps
