// Names of enum values, and the name that a user probably meant. Pure, callable from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

/// Returns whether the compiler knows a name for `value`: it prints others as "(Enum)8".
template <auto value>
[[nodiscard]] constexpr bool has_name() noexcept {
  return std::string_view(__PRETTY_FUNCTION__).find("= (") == std::string_view::npos;
}

/// Name of `value`; "?" if it is none of the enum's. `names` has one per value from 0 to `last`, in their order.
template <auto last, std::size_t count>
[[nodiscard]] constexpr const char* enum_name(decltype(last) value, const char* const (&names)[count]) noexcept {
  static_assert(count == static_cast<std::size_t>(last) + 1);
  static_assert(!has_name<static_cast<decltype(last)>(count)>(), "a value of the enum follows `last`");
  const auto index = static_cast<std::size_t>(value);
  return index < count ? names[index] : "?";
}

/// Candidate that was probably meant by `name`: the one with the fewest edits (insert, delete, replace, swap
/// neighbors) if these are few. Otherwise one whose words all occur in `name`, or that has all words of `name`.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name,
                                                      const std::vector<std::string>& candidates);

}  // namespace ranvier::runtime
