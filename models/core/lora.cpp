#include "models/core/lora.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// Whether one of the names matches the end of the module's name.
bool names_module(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return module == name || module.ends_with("." + name); });
}

}  // namespace

bool LoraOptions::adapts(std::string_view module) const { return names_module(targets, module); }

bool LoraOptions::trains(std::string_view parameter) const {
  if (is_adapter(parameter)) return true;
  // Enclosing modules, innermost first.
  for (std::size_t end = parameter.rfind('.'); end != std::string_view::npos && end > 0;
       end = parameter.rfind('.', end - 1))
    if (names_module(whole, parameter.substr(0, end))) return true;
  return false;
}

std::vector<std::string> parse_targets(std::string_view text) {
  std::vector<std::string> targets;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (begin == end) return {};
    targets.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  sort_targets(targets);
  return targets;
}

void sort_targets(std::vector<std::string>& targets) {
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
}

bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight");
}

}  // namespace ranvier::models
