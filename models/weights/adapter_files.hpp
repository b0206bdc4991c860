// Adapters (models/lora.hpp) in PEFT's files: a folder with adapter_config.json and adapter_model.safetensors, whose
// tensors are called "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". Modules of a head for classes
// that are trained as a whole (PEFT's modules_to_save) are in the file as well: "base_model.model.classifier.weight".
// Any thread.
#pragma once

#include "models/layer.hpp"
#include "models/lora.hpp"
#include "models/model.hpp"
#include "models/unit_source.hpp"
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

/// What its config.json says of the adapter in a folder. Throws ErrorCode::data, naming file, key and value, for what
/// is computed otherwise here.
[[nodiscard]] LoraOptions read_adapter_config(const std::filesystem::path& folder);
/// `base`: the weights that it was trained beside. `sizes`: of the model that they make.
[[nodiscard]] std::string adapter_config_json(const LoraOptions& lora, const std::string& base,
                                              const ModelSizes& sizes);

/// What an adapter's file has of these units: adapters, and what is trained beside them. None where none has adapters.
[[nodiscard]] std::vector<UnitSpec> adapter_units(std::span<const UnitSpec> units);
/// What weights have of them: all but adapters.
[[nodiscard]] std::vector<UnitSpec> base_units(std::span<const UnitSpec> units);
/// Whether it is of adapters, which weights do not have.
[[nodiscard]] bool has_adapters(const UnitSpec& unit);
/// The same unit, its parameters called as in PEFT's files; GPT-2's blocks are in the `transformer` of its class there.
[[nodiscard]] UnitSpec in_peft_names(UnitSpec unit);

/// Reads the adapters of these units. Throws ErrorCode::data unless the folder's file has them and nothing else.
[[nodiscard]] UnitSource open_adapter(const std::filesystem::path& folder, std::span<const UnitSpec> adapters);

/// Adds adapters to the weights beside them: W + alpha / rank · B · A, or (B · A)ᵀ where W is stored [in, out]. Modules
/// that were trained as a whole are not its concern.
class AdapterMerge {
 public:
  /// Holds all adapters.
  AdapterMerge(const LoraOptions& lora, const ModelSizes& sizes, std::span<const UnitSpec> adapters,
               const UnitSource& read);

  /// Whether it changes this parameter of the base.
  [[nodiscard]] bool changes(const std::string& parameter) const;
  /// `values` are those of elements [begin, …) of a unit of the base.
  void add(const UnitSpec& unit, std::size_t begin, std::span<float> values) const;

 private:
  LoraOptions lora_;
  bool inputs_first_;                                                // stores_inputs_first()
  std::map<std::string, std::vector<float>, std::less<>> matrices_;  // by parameter
};

}  // namespace ranvier::models
