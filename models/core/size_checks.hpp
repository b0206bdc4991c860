// Size checks shared by several families, with their messages; empty: no problem. Pure; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// A size with its name in messages: "`hidden`" 384.
struct NamedSize {
  std::string_view name;
  int value = 0;
};

[[nodiscard]] std::optional<std::string> min_problem(int least, std::initializer_list<NamedSize> sizes);
/// Both must be positive.
[[nodiscard]] std::optional<std::string> divisor_problem(const NamedSize& size, const NamedSize& whole);
[[nodiscard]] std::optional<std::string> dropout_problem(std::string_view name, float rate);

/// Largest divisor of `whole` that is at most `wanted`; both are positive.
[[nodiscard]] int divisor_near(int wanted, int whole);

/// Size that the number of tiles must divide, with its name in messages: "`hidden` 384".
struct TiledSize {
  std::string name;
  std::int64_t channels = 1;
};
/// Problem of this number of tiles per matrix, with a remedy.
[[nodiscard]] std::optional<std::string> tile_problem(std::string_view tile_name, int tile,
                                                      std::initializer_list<TiledSize> sizes);

}  // namespace ranvier::models
