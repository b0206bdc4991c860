#include "models/core/tuning.hpp"

#include "models/core/lora.hpp"
#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace ranvier::models {
namespace {

/// Whether a linear map can have adapters, by the last part of its name.
bool takes_adapters(std::string_view product) {
  constexpr std::array<std::string_view, 6> others{"query", "key", "value", "dense", "c_attn", "c_fc"};
  return product.ends_with("_proj") || std::find(others.begin(), others.end(), product) != others.end();
}

/// Parameter names of the first two layers and the last; other layers have similar names.
std::vector<std::string> names_to_match(const Architecture& architecture) {
  std::vector<std::string> names;
  const auto of_layer = [&](const Layer& layer) {
    for (const UnitSpec& unit : layer.units()) {
      for (const ParameterSpec& parameter : unit.parameters) {
        if (names.empty() || names.back() != parameter.name) names.push_back(parameter.name);
      }
    }
  };
  constexpr std::size_t layers = 2;
  for (std::size_t l = 0; l < std::min(layers, architecture.layers.size()); ++l) of_layer(*architecture.layers[l]);
  of_layer(*architecture.layers.back());
  return names;
}

}  // namespace

bool Tuning::trains(std::string_view name) const {
  if (lora) return lora->trains(name);
  return (!train || train->matches_in(name)) && !(freeze && freeze->matches_in(name));
}

Tuning make_tuning(const std::string& train, const std::string& freeze) {
  Tuning tuning;
  if (!train.empty()) tuning.train.emplace(train, "`train`");
  if (!freeze.empty()) tuning.freeze.emplace(freeze, "`freeze`");
  return tuning;
}

UnitSpec tuned(UnitSpec unit, const Tuning& tuning) {
  const auto is_trained = [&](const ParameterSpec& parameter) { return tuning.trains(parameter.name); };
  const auto& all = unit.parameters;
  const auto first = std::find_if(all.begin(), all.end(), is_trained);
  unit.trained = all.empty() || first != all.end();
  if (first == all.end()) return unit;
  const auto frozen = std::find_if_not(all.begin(), all.end(), is_trained);
  if (frozen != all.end()) {
    fail(ErrorCode::usage,
         "`train` and `freeze` split unit '{2}': {0} is trained, {1} is frozen; make the patterns match all names "
         "of the unit or none, for example '^h\\.(10|11)\\.'",
         first->name, frozen->name, unit.name);
  }
  return unit;
}

void expect_targets(const Architecture& architecture, const LoraOptions& lora) {
  std::set<std::string> modules;  // last parts of their names
  std::vector<std::string> missing;
  const auto units = architecture.units();
  for (const std::string& target : lora.targets) {
    bool found = false;
    for (const UnitSpec& unit : units) {
      for (const ParameterSpec& parameter : unit.parameters) {
        const std::string module = parameter.name.substr(0, parameter.name.find(".lora_"));
        found = found || (is_adapter(parameter.name) && LoraOptions{.targets = {target}}.adapts(module));
        const std::string base = module.substr(0, module.rfind('.'));
        const std::string last = base.substr(base.rfind('.') + 1);
        if (takes_adapters(last)) modules.insert(last);
      }
    }
    if (!found) missing.push_back(target);
  }
  if (missing.empty() && !lora.targets.empty()) return;
  if (!lora.origin.empty())
    fail(ErrorCode::usage, "{}: {} has no matrix '{}' for adapters; use the weights of the adapter's base model",
         lora.origin, architecture.name, fmt::join(missing, "' or '"));
  fail(ErrorCode::usage, "`lora_targets` {}: {} has no such matrix for adapters; use one of {}",
       fmt::join(missing, ","), architecture.name, fmt::join(modules, ", "));
}

void expect_whole(const Architecture& architecture, const LoraOptions& lora, bool tells_classes) {
  if (lora.whole.empty()) return;
  const auto& layers = architecture.layers;
  const auto names_some_of = [](const std::string& module, const std::unique_ptr<Layer>& layer) {
    const LoraOptions one{.targets = {}, .whole = {module}};
    return std::any_of(layer->units().begin(), layer->units().end(), [&](const UnitSpec& unit) {
      return std::any_of(unit.parameters.begin(), unit.parameters.end(), [&](const ParameterSpec& parameter) {
        return !is_adapter(parameter.name) && one.trains(parameter.name);
      });
    });
  };
  std::vector<std::string> of_head, missing;
  for (const std::string& module : lora.whole) {
    const auto names_it = [&](const auto& layer) { return names_some_of(module, layer); };
    const bool only_head = names_it(layers.back()) && std::none_of(layers.begin(), layers.end() - 1, names_it);
    (tells_classes && only_head ? of_head : missing).push_back(module);
  }
  // PEFT's list also has names of other models' heads.
  const bool strange = lora.origin.empty() || of_head.empty() ||
                       std::any_of(missing.begin(), missing.end(), [&](const auto& module) {
                         return std::any_of(layers.begin(), layers.end(),
                                            [&](const auto& layer) { return names_some_of(module, layer); });
                       });
  if (missing.empty() || !strange) return;
  const std::string given = lora.origin.empty() ? fmt::format("`lora_whole` {}", fmt::join(lora.whole, ","))
                                                : lora.origin + ": its 'modules_to_save'";
  const std::string names = fmt::format("'{}'", fmt::join(missing, "' or '"));
  if (!tells_classes)
    fail(ErrorCode::usage, "{}: {} has no classification head with {} to train in full; {}", given,
         architecture.name, names,
         lora.origin.empty() ? "remove `lora_whole`, or use BERT or RoBERTa with `label_field`"
                             : "use BERT or RoBERTa with `label_field`, or an adapter without such modules");
  fail(ErrorCode::usage,
       "{}: the classification head of {} has no module {} to train in full; use {} classifier, or for BERT "
       "classifier,pooler",
       given, architecture.name, names, lora.origin.empty() ? "`lora_whole`" : "an adapter with modules_to_save");
}

void expect_trained(const Architecture& architecture, const Tuning& tuning) {
  const auto units = architecture.units();
  const auto is_frozen = [&](const ParameterSpec& parameter) { return tuning.freeze->matches_in(parameter.name); };
  if (tuning.freeze && std::none_of(units.begin(), units.end(), [&](const UnitSpec& unit) {
        return std::any_of(unit.parameters.begin(), unit.parameters.end(), is_frozen);
      }))
    fail(ErrorCode::usage,
         "`freeze` matches no parameter of '{}' (it has {}, the same in each layer); use an expression that "
         "matches some, or remove `freeze`",
         architecture.name, fmt::join(names_to_match(architecture), ", "));
  if (std::any_of(units.begin(), units.end(), [](const UnitSpec& unit) { return unit.trained; })) return;
  fail(ErrorCode::usage,
       "`train` and `freeze` leave no parameter of '{}' to train (it has {}, the same in each layer); use "
       "expressions that match some",
       architecture.name, fmt::join(names_to_match(architecture), ", "));
}

}  // namespace ranvier::models
