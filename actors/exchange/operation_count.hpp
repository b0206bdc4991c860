// Counts launches, collectives and messages of a rank at a batch's end, from accumulated gradients to refreshed
// parameters. Each costs latency, so launches must not grow with the ranks of a column. Pure data; any thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

struct OperationCount {
  std::size_t steps = 0;        ///< launches of AdamW
  std::size_t squares = 0;      ///< launches for squared norms and their sums per unit
  std::size_t copies = 0;       ///< copies to gather buffers, and for packing
  std::size_t additions = 0;    ///< sums of received data
  std::size_t collectives = 0;  ///< operations
  std::size_t messages = 0;     ///< messages sent by collectives

  [[nodiscard]] std::size_t launches() const noexcept { return steps + squares + copies + additions; }
};

/// Counts for states on the device and collectives by plans.
[[nodiscard]] OperationCount count_operations(const ModelShare& share);

}  // namespace ranvier::actors
