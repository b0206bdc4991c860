// Pinned staging buffers between device and host: taken for one transfer, returned when the last owner releases them.
// The pool grows if the reserved buffers are in use or too small. Taking is for the loop's thread; any thread may
// release.
#pragma once

#include "runtime/device/device.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace ranvier::runtime {

class PinnedPool {
 public:
  /// The device outlives the pool; buffers may outlive both. Errors contain the name: "inputs on their way".
  PinnedPool(Device& device, std::string name);

  /// Size of a buffer for `bytes`: a power of two, so that buffers can be reused.
  [[nodiscard]] static std::size_t buffer_bytes(std::size_t bytes) noexcept;

  /// Allocates `count` more buffers for `bytes`. Throws what Device::allocate() does.
  void reserve(std::size_t bytes, std::size_t count);

  /// Smallest free buffer that is large enough, or a new one; its content is undefined. Throws what
  /// Device::allocate() does.
  [[nodiscard]] std::shared_ptr<std::byte> take(std::size_t bytes);
  /// Same as take(), but null if buffers of this size exist and all of them are in use.
  [[nodiscard]] std::shared_ptr<std::byte> take_if_free(std::size_t bytes);

  /// Bytes of all buffers, in use or not.
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
