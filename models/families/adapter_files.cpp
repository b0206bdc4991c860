#include "models/families/adapter_files.hpp"

#include "models/weights/config_file.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* prefix = "base_model.model.";

/// Names in the list of this key, in order; none if it is null or missing.
std::vector<std::string> names_in(const ConfigFile& config, const char* key) {
  std::vector<std::string> names;
  const json::value* const value = config.find(key);
  if (value == nullptr || value->is_null()) return names;
  const auto* const list = value->if_array();
  if (list == nullptr ||
      !std::all_of(list->begin(), list->end(), [](const json::value& name) { return name.is_string(); }))
    config.refuse(key, "a list of module names");
  for (const json::value& name : *list) names.emplace_back(name.get_string());
  sort_targets(names);
  return names;
}

bool is_nothing(const json::value& value) {
  if (const auto* const array = value.if_array()) return array->empty();
  if (const auto* const object = value.if_object()) return object->empty();
  return value.is_null();
}

/// Whether this initialization of adapters leaves the base model's weights unchanged.
bool keeps_base(const json::value& beginning) {
  return beginning.is_bool() || is_text(beginning, {"gaussian", "orthogonal", "eva"});
}

void expect_same_base(const Safetensors& file, std::span<const UnitSpec> adapters) {
  const std::vector<TensorToStore> wanted = tensors_of(adapters);
  for (const TensorToStore& tensor : wanted) {
    const StoredTensor* const stored = file.find(tensor.name);
    if (stored == nullptr || stored->shape != tensor.shape)
      fail(ErrorCode::data,
           "{}: the adapter does not fit this base model: tensor '{}' needs shape {}, but the file has {}",
           file.path().string(), tensor.name, shape_text(tensor.shape),
           stored == nullptr ? "no such tensor" : "shape " + shape_text(stored->shape));
  }
  for (const StoredTensor& stored : file.tensors()) {
    const auto same = [&](const TensorToStore& tensor) { return tensor.name == stored.name; };
    if (std::none_of(wanted.begin(), wanted.end(), same))
      fail(ErrorCode::data, "{}: the adapter does not fit this base model, which has no tensor '{}'",
           file.path().string(), stored.name);
  }
}

}  // namespace

LoraOptions read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / adapter_config_name;
  std::error_code ignored;
  std::ifstream stream;
  if (fs::is_regular_file(path, ignored)) stream.open(path, std::ios::binary);  // a pipe must not block here
  if (!stream.is_open())
    fail(ErrorCode::data, "{}: cannot read; use the folder of an adapter in PEFT's format", path.string());
  const ConfigFile config(std::string{std::istreambuf_iterator<char>(stream), {}}, path);
  config.require("peft_type", "LORA", "low-rank adapters");
  config.require("bias", "none", "adapters without biases");
  for (const char* flag : {"use_rslora", "use_dora", "use_qalora", "lora_bias"})
    config.require(flag, false, "plain LoRA");
  // PEFT ignores the value and uses the layout of the base model's weights.
  config.require("fan_in_fan_out", [](const auto& value) { return value.is_bool(); }, "true or false");
  for (const auto& [key, computed] : {std::pair{"rank_pattern", "one rank for all targets"},
                                      {"alpha_pattern", "one scale for all targets"},
                                      {"layers_to_transform", "adapters in all layers"},
                                      {"layer_replication", "each layer of the base once"},
                                      {"alora_invocation_tokens", "adapters at all positions"},
                                      {"target_parameters", "adapters of modules"}})
    config.require(key, is_nothing, computed);
  config.require("init_lora_weights", keeps_base, "adapters of an unchanged base");
  LoraOptions lora;
  lora.origin = path.string();
  lora.rank = config.size("r");
  if (lora.rank > max_lora_rank) config.refuse("r", fmt::format("ranks of at most {}", max_lora_rank));
  lora.alpha = static_cast<float>(config.number("lora_alpha"));
  lora.dropout = config.rate("lora_dropout", 0);
  lora.targets = names_in(config, "target_modules");
  if (lora.targets.empty()) config.refuse("target_modules", "a list of module names");
  lora.whole = names_in(config, "modules_to_save");
  return lora;
}

std::string adapter_config_json(const LoraOptions& lora, const std::string& base, const ModelSizes& sizes) {
  JsonMembers config("{}");
  config.set("base_model_name_or_path", json::serialize(json::string(base)));
  config.set("bias", R"("none")");
  config.set("fan_in_fan_out", stores_inputs_first(sizes) ? "true" : "false");
  config.set("inference_mode", "true");
  config.set("init_lora_weights", "true");
  config.set("layers_to_transform", "null");
  config.set("lora_alpha", fmt::format("{}", lora.alpha));
  config.set("lora_dropout", fmt::format("{}", lora.dropout));
  config.set("modules_to_save",
             lora.whole.empty() ? "null" : json::serialize(json::array(lora.whole.begin(), lora.whole.end())));
  config.set("peft_type", R"("LORA")");
  config.set("r", fmt::format("{}", lora.rank));
  config.set("target_modules", json::serialize(json::array(lora.targets.begin(), lora.targets.end())));
  config.set("task_type", tells_classes(sizes) ? R"("SEQ_CLS")"
                          : fills_masks(sizes) ? "null"  // PEFT has no type for it
                                               : R"("CAUSAL_LM")");
  return config.json();
}

bool has_adapters(const UnitSpec& unit) {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [](const ParameterSpec& parameter) { return is_adapter(parameter.name); });
}

std::vector<UnitSpec> adapter_units(std::span<const UnitSpec> units) {
  std::vector<UnitSpec> some;
  if (std::any_of(units.begin(), units.end(), has_adapters))
    std::copy_if(units.begin(), units.end(), std::back_inserter(some),
                 [](const UnitSpec& unit) { return unit.trained; });
  return some;
}

std::vector<UnitSpec> base_units(std::span<const UnitSpec> units) {
  std::vector<UnitSpec> some;
  std::copy_if(units.begin(), units.end(), std::back_inserter(some),
               [](const UnitSpec& unit) { return !has_adapters(unit); });
  return some;
}

UnitSpec in_peft_names(UnitSpec unit) {
  for (ParameterSpec& parameter : unit.parameters) {
    std::string& name = parameter.name;
    name = prefix + (name.starts_with("h.") ? std::string(stored_prefix) + name : name);
  }
  return unit;
}

UnitSource open_adapter(const fs::path& folder, std::span<const UnitSpec> adapters) {
  const auto file = std::make_shared<const Safetensors>(folder / adapter_weights_name);
  std::vector<UnitSpec> named;
  for (const UnitSpec& unit : adapters) named.push_back(in_peft_names(unit));
  expect_same_base(*file, named);
  check_weights(*file, named);
  return [file](const UnitSpec& unit, std::size_t begin, std::span<float> out) {
    read_unit(*file, in_peft_names(unit), begin, begin + out.size(), out.data());
  };
}

AdapterMerge::AdapterMerge(const LoraOptions& lora, const ModelSizes& sizes, std::span<const UnitSpec> adapters,
                           const UnitSource& read)
    : lora_(lora), inputs_first_(stores_inputs_first(sizes)) {
  for (const UnitSpec& unit : adapters) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      if (!is_adapter(unit.parameters[p].name)) continue;
      std::vector<float>& values = matrices_[unit.parameters[p].name];
      values.resize(unit.parameters[p].elements());
      read(unit, unit.offset(p), values);
    }
  }
}

bool AdapterMerge::changes(const std::string& parameter) const {
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  return parameter.ends_with(".weight") && matrices_.contains(lora_a(module)) && matrices_.contains(lora_b(module));
}

void AdapterMerge::add(const UnitSpec& unit, std::size_t begin, std::span<float> values) const {
  const auto rank = static_cast<std::size_t>(lora_.rank);
  std::vector<double> sums;
  for_each_part(unit, begin, begin + values.size(),
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  if (!changes(parameter.name)) return;
                  const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
                  const auto a = matrices_.find(lora_a(module)), b = matrices_.find(lora_b(module));
                  // A row of W goes with a row of B and columns of A, and with [in, out] the other way round.
                  const std::size_t inputs = a->second.size() / rank;
                  const std::size_t columns = inputs_first_ ? b->second.size() / rank : inputs;
                  const std::size_t stride = inputs_first_ ? rank : 1;
                  std::size_t part = 0;  // of a row
                  for (std::size_t e = 0; e < count; e += part) {
                    const std::size_t row = (first + e) / columns, column = (first + e) % columns;
                    part = std::min(columns - column, count - e);
                    sums.assign(part, 0.0);
                    for (std::size_t r = 0; r < rank; ++r) {
                      const double of_row = inputs_first_ ? a->second[r * inputs + row] : b->second[row * rank + r];
                      const float* const of_columns = inputs_first_ ? b->second.data() + column * rank + r
                                                                    : a->second.data() + r * inputs + column;
                      for (std::size_t c = 0; c < part; ++c) sums[c] += of_row * of_columns[c * stride];
                    }
                    float* const to = values.data() + (at - begin + e);
                    for (std::size_t c = 0; c < part; ++c)
                      to[c] = static_cast<float>(to[c] + double{lora_.factor()} * sums[c]);
                  }
                });
}

}  // namespace ranvier::models
