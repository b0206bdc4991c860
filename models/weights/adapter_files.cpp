#include "models/weights/adapter_files.hpp"

#include "models/weights/config_file.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/error.hpp"

#include <boost/json/serialize.hpp>

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

bool has_adapters(const UnitSpec& unit) {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [](const ParameterSpec& parameter) { return is_adapter(parameter.name); });
}

std::vector<UnitSpec> units_where(std::span<const UnitSpec> units, bool adapters) {
  std::vector<UnitSpec> some;
  std::copy_if(units.begin(), units.end(), std::back_inserter(some),
               [&](const UnitSpec& unit) { return has_adapters(unit) == adapters; });
  return some;
}

bool is_nothing(const json::value& value) {
  if (const auto* const array = value.if_array()) return array->empty();
  if (const auto* const object = value.if_object()) return object->empty();
  return value.is_null();
}

}  // namespace

LoraOptions read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / adapter_config_name;
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    fail(ErrorCode::data, "{}: it cannot be read: give the folder of an adapter as PEFT saves them", path.string());
  const ConfigFile config(std::string{std::istreambuf_iterator<char>(stream), {}}, path);
  config.require("peft_type", "LORA", "low-rank adapters");
  config.require("bias", "none", "adapters without biases");
  for (const char* flag : {"use_rslora", "use_dora", "fan_in_fan_out", "lora_bias"})
    config.require(flag, false, "plain LoRA");
  for (const char* pattern : {"rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform"})
    config.require(pattern, is_nothing, "one rank and scale for all targets");
  LoraOptions lora;
  lora.rank = config.size("r");
  lora.alpha = static_cast<float>(config.number("lora_alpha"));
  lora.dropout = config.rate("lora_dropout", 0);
  const json::value* const targets = config.find("target_modules");
  const auto* const list = targets == nullptr ? nullptr : targets->if_array();
  if (list == nullptr || list->empty() ||
      !std::all_of(list->begin(), list->end(), [](const json::value& target) { return target.is_string(); }))
    config.refuse("target_modules", "a list of modules' names");
  for (const json::value& target : *list) lora.targets.emplace_back(target.get_string());
  return lora;
}

std::string adapter_config_json(const LoraOptions& lora, const std::string& base) {
  json::array targets;
  for (const std::string& target : lora.targets) targets.emplace_back(target);
  const json::object config{{"base_model_name_or_path", base},
                            {"bias", "none"},
                            {"fan_in_fan_out", false},
                            {"inference_mode", true},
                            {"init_lora_weights", true},
                            {"layers_to_transform", nullptr},
                            {"lora_alpha", lora.alpha},
                            {"lora_dropout", lora.dropout},
                            {"modules_to_save", nullptr},
                            {"peft_type", "LORA"},
                            {"r", lora.rank},
                            {"target_modules", std::move(targets)},
                            {"task_type", "CAUSAL_LM"}};
  return json::serialize(config) + "\n";
}

std::vector<UnitSpec> adapter_units(std::span<const UnitSpec> units) { return units_where(units, true); }
std::vector<UnitSpec> base_units(std::span<const UnitSpec> units) { return units_where(units, false); }

UnitSpec in_peft_names(UnitSpec unit) {
  for (ParameterSpec& parameter : unit.parameters) parameter.name = prefix + parameter.name;
  return unit;
}

UnitReader open_adapter(const fs::path& folder, std::span<const UnitSpec> adapters) {
  const auto file = std::make_shared<const Safetensors>(folder / adapter_weights_name);
  std::vector<UnitSpec> named;
  for (const UnitSpec& unit : adapters) named.push_back(in_peft_names(unit));
  check_weights(*file, named);
  return [file](const UnitSpec& unit, std::size_t begin, std::span<float> out) {
    read_unit(*file, in_peft_names(unit), begin, begin + out.size(), out.data());
  };
}

AdapterMerge::AdapterMerge(const LoraOptions& lora, std::span<const UnitSpec> adapters, const UnitReader& read)
    : lora_(lora) {
  for (const UnitSpec& unit : adapters) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      std::vector<float>& values = matrices_[unit.parameters[p].name];
      values.resize(unit.parameters[p].elements());
      read(unit, unit.offset(p), values);
    }
  }
}

void AdapterMerge::add(const UnitSpec& unit, std::size_t begin, std::span<float> values) const {
  const auto rank = static_cast<std::size_t>(lora_.rank);
  for_each_part(unit, begin, begin + values.size(),
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
                  const auto a = matrices_.find(lora_a(module)), b = matrices_.find(lora_b(module));
                  if (a == matrices_.end() || b == matrices_.end() || !parameter.name.ends_with(".weight")) return;
                  const std::size_t columns = a->second.size() / rank;
                  for (std::size_t e = 0; e < count; ++e) {
                    const std::size_t row = (first + e) / columns, column = (first + e) % columns;
                    double sum = 0;
                    for (std::size_t r = 0; r < rank; ++r)
                      sum += double{b->second[row * rank + r]} * a->second[r * columns + column];
                    float& value = values[at - begin + e];
                    value = static_cast<float>(value + double{lora_.factor()} * sum);
                  }
                });
}

}  // namespace ranvier::models
