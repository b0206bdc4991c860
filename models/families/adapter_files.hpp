// Reads and writes adapters (models/core/lora.hpp) in PEFT's format: a folder with adapter_config.json and
// adapter_model.safetensors, with tensors like "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
// Fully trained modules of a classification head (PEFT's modules_to_save) are included:
// "base_model.model.classifier.weight". Any thread.
#pragma once

#include "models/core/layer.hpp"
#include "models/core/lora.hpp"
#include "models/core/unit.hpp"
#include "models/families/model.hpp"
#include "models/weights/safetensors.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";
inline constexpr const char* adapter_config_name = "adapter_config.json";

/// Reads adapter_config.json of the adapter in a folder. Throws ErrorCode::data, naming file, key and value, for
/// unsupported values.
[[nodiscard]] LoraOptions read_adapter_config(const std::filesystem::path& folder);
/// `base`: weights of the base model. `sizes`: sizes of the model.
[[nodiscard]] std::string adapter_config_json(const LoraOptions& lora, const std::string& base,
                                              const ModelSizes& sizes);

/// Units of an adapter file: adapters, and modules trained next to them. Empty if no unit has adapters.
[[nodiscard]] std::vector<UnitSpec> adapter_units(std::span<const UnitSpec> units);
/// Units of the base weights: all but adapters.
[[nodiscard]] std::vector<UnitSpec> base_units(std::span<const UnitSpec> units);
/// Whether the unit has adapters, which weights files do not contain.
[[nodiscard]] bool has_adapters(const UnitSpec& unit);
/// The same unit with PEFT's parameter names; GPT-2's blocks are in the `transformer` of its class.
[[nodiscard]] UnitSpec in_peft_names(UnitSpec unit);

/// Reads the adapters of these units. Throws ErrorCode::data unless the folder's file has exactly these.
[[nodiscard]] UnitSource open_adapter(const std::filesystem::path& folder, std::span<const UnitSpec> adapters);

/// Merges adapters into the base weights: W + alpha / rank · B · A, or (B · A)ᵀ if W is stored [in, out]. Ignores
/// fully trained modules.
class AdapterMerge {
 public:
  /// Reads all adapters into memory.
  AdapterMerge(const LoraOptions& lora, const ModelSizes& sizes, std::span<const UnitSpec> adapters,
               const UnitSource& read);

  /// Whether it changes this parameter of the base.
  [[nodiscard]] bool changes(const std::string& parameter) const;
  /// `values` are elements [begin, …) of a unit of the base.
  void add(const UnitSpec& unit, std::size_t begin, std::span<float> values) const;

 private:
  LoraOptions lora_;
  bool inputs_first_;                                                // stores_inputs_first()
  std::map<std::string, std::vector<float>, std::less<>> matrices_;  // by parameter
};

}  // namespace ranvier::models
