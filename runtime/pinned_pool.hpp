// Pinned buffers on the way between a device and the host: taken for one transfer, back when the last owner lets go.
// Grows until it has as many as are out at a time, which is after the first step; then nothing is allocated. Taking is
// for the loop's thread, letting go for any.
#pragma once

#include "runtime/device.hpp"

#include <cstddef>
#include <memory>

namespace ranvier::runtime {

class PinnedPool {
 public:
  /// The device outlives the pool, and what was taken may outlive both.
  explicit PinnedPool(Device& device);

  /// At least `bytes`; its content is whatever was there. Throws ErrorCode::memory.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);

  /// Of all buffers, in use or not.
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  struct State;
  Device* device_;
  std::shared_ptr<State> state_;
};

}  // namespace ranvier::runtime
