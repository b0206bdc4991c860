// How many pieces of work a batch's end is for one rank: what it queues on streams and what it sends, from the sums of
// the batch to refreshed parameters. They cost latency, whatever their size, so they must not grow with the ranks of a
// column: a bucket is one operation of each kind, and each step of a collective one message to a peer. Pure data; any
// thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

struct OperationCount {
  std::size_t steps = 0;        ///< launches of AdamW
  std::size_t squares = 0;      ///< launches of sums of squares, and of the units' sums of these
  std::size_t copies = 0;       ///< to places that are gathered to, and of what collectives pack
  std::size_t additions = 0;    ///< of what collectives receive
  std::size_t collectives = 0;  ///< operations
  std::size_t messages = 0;     ///< sent for these

  [[nodiscard]] std::size_t launches() const noexcept { return steps + squares + copies + additions; }
};

/// Where states are on the device and collectives run plans.
[[nodiscard]] OperationCount count_operations(const ModelShare& share);

}  // namespace ranvier::actors
