// Pinned buffers on the way between a device and the host: taken for one transfer, back when the last owner lets go.
// Those that were reserved are enough where no more transfers are under way, none of them longer; otherwise it grows.
// Taking is for the loop's thread, letting go for any.
#pragma once

#include "runtime/device.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace ranvier::runtime {

class PinnedPool {
 public:
  /// The device outlives the pool, and what was taken may outlive both. Errors have the name: "inputs on their way".
  PinnedPool(Device& device, std::string name);

  /// What a buffer for so many bytes takes: a power of two, so that buffers fit again.
  [[nodiscard]] static std::size_t buffer_bytes(std::size_t bytes) noexcept;

  /// Allocates `count` more buffers for `bytes`. Throws what Device::allocate() does.
  void reserve(std::size_t bytes, std::size_t count);

  /// The smallest that is large enough; its content is whatever was there. Throws what Device::allocate() does.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);
  /// The same, or null while all that are large enough are out.
  [[nodiscard]] std::shared_ptr<std::byte> take_if_free(std::size_t bytes);

  /// Of all buffers, in use or not.
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  struct State;
  [[nodiscard]] Buffer allocate(std::size_t bytes);
  [[nodiscard]] std::shared_ptr<std::byte> lend(Buffer buffer);

  Device* device_;
  std::string name_;
  std::shared_ptr<State> state_;
};

}  // namespace ranvier::runtime
