// The name that a user probably meant. Pure, callable from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

/// Candidate that was probably meant by `name`: the one with the fewest edits (insert, delete, replace, swap
/// neighbors) if these are few. Otherwise one whose words all occur in `name`, or that has all words of `name`.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name,
                                                      const std::vector<std::string>& candidates);

}  // namespace ranvier::runtime
