// What sizes of several families are held to, and what messages say of them: each check is empty where nothing is
// wrong. Pure; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// A size, and how a message calls it: "--hidden" 384.
struct NamedSize {
  std::string_view name;
  int value = 0;
};

[[nodiscard]] std::optional<std::string> min_problem(int least, std::initializer_list<NamedSize> sizes);
/// Both are positive.
[[nodiscard]] std::optional<std::string> divisor_problem(const NamedSize& size, const NamedSize& whole);
[[nodiscard]] std::optional<std::string> dropout_problem(std::string_view name, float rate);

/// The greatest divisor of `whole` that is not above `wanted`; both are positive.
[[nodiscard]] int divisor_near(int wanted, int whole);

/// What tiles have to divide, and how a message calls it: "--hidden 384".
struct TiledSize {
  std::string name;
  std::int64_t channels = 1;
};
/// What is wrong with so many tiles of each matrix, and what to choose.
[[nodiscard]] std::optional<std::string> tile_problem(std::string_view tile_name, int tile,
                                                      std::initializer_list<TiledSize> sizes);

}  // namespace ranvier::models
