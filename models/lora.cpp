#include "models/lora.hpp"

#include <algorithm>

namespace ranvier::models {

bool LoraOptions::adapts(std::string_view module) const {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return module == target || module.ends_with("." + target); });
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
