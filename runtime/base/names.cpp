#include "runtime/base/names.hpp"

#include <algorithm>

namespace ranvier::runtime {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<std::size_t> cost((a.size() + 1) * columns);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return cost[i * columns + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const std::size_t replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return cost.back();
}

/// Words of a name, separated by dashes or underscores.
std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("-_"), name.size());
    if (end > 0) words.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

/// Number of words in `these` that `those` contains, too.
std::size_t shared_words(const std::vector<std::string_view>& these, const std::vector<std::string_view>& those) {
  return static_cast<std::size_t>(std::count_if(these.begin(), these.end(), [&](std::string_view word) {
    return std::find(those.begin(), those.end(), word) != those.end();
  }));
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest_name = 100;  // longer names are never near, and slow to compare
  if (name.size() > longest_name) return {};
  // A typing error in one place. In short names, two different letters make another name.
  std::optional<std::string> nearest;
  std::size_t fewest = std::max<std::size_t>(1, name.size() / 4) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t edits = edit_distance(name, candidate);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  if (nearest) return nearest;
  // All words of one occur in the other: num-layers and layers, rate and learning-rate.
  const std::vector<std::string_view> words = words_of(name);
  std::size_t most = 0;
  for (const auto& candidate : candidates) {
    const auto others = words_of(candidate);
    const std::size_t shared = shared_words(words, others);
    if (shared <= most || (shared < words.size() && shared < others.size())) continue;
    most = shared;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace ranvier::runtime
