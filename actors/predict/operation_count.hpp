// Counts a rank's kernel launches, collectives and messages between the last backward pass of a batch and the first
// pass of the next; each costs latency. A bucket is one operation of each kind for any number of ranks; additions and
// messages grow with the steps of its collective. Any thread.
#pragma once

#include "actors/states/model_share.hpp"

#include <cstddef>

namespace ranvier::actors {

struct OperationCount {
  std::size_t steps = 0;        ///< launches of the optimizer's update
  std::size_t squares = 0;      ///< launches for squared norms and their sums per unit
  std::size_t copies = 0;       ///< copies to gather buffers, and for packing, encoding and decoding
  std::size_t additions = 0;    ///< sums of received data
  std::size_t collectives = 0;  ///< operations
  std::size_t messages = 0;     ///< messages sent by collectives, and by Muon

  [[nodiscard]] std::size_t launches() const noexcept { return steps + squares + copies + additions; }
};

/// Counts for states on the device and collectives by plans.
[[nodiscard]] OperationCount count_operations(const ModelShare& share);

}  // namespace ranvier::actors
