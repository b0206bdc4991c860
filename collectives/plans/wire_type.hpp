// Types of elements in messages of collectives, per class of links (ZeRO++ §3.1, §3.3). Pure data; any thread.
#pragma once

#include "runtime/base/names.hpp"

namespace ranvier::collectives {

enum class WireType {
  same,  ///< the type of the data
  int8,  ///< blocks of 256 elements, each with a scale
  int4,  ///< the same; reductions only
};
[[nodiscard]] constexpr const char* to_string(WireType type) noexcept {
  return runtime::enum_name<WireType::int4>(type, {"same", "int8", "int4"});
}

struct WireTypes {
  /// By links of a team: all its ranks are on one node, or not.
  struct Links {
    WireType intra_node = WireType::same;
    WireType inter_node = WireType::same;

    /// Returns whether messages have the type of the data on all links.
    [[nodiscard]] bool same() const noexcept { return *this == Links{}; }
    friend bool operator==(const Links&, const Links&) = default;
  };
  Links gather;  ///< parameters
  Links reduce;  ///< gradients

  /// Returns whether any messages of trained or frozen units have blocks.
  [[nodiscard]] bool in_blocks(bool trained) const noexcept {
    return !gather.same() || (trained && !reduce.same());
  }
  friend bool operator==(const WireTypes&, const WireTypes&) = default;
};

}  // namespace ranvier::collectives
