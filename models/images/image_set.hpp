// Images by number, each with its class. Any thread, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

class ImageSet {
 public:
  virtual ~ImageSet() = default;

  [[nodiscard]] virtual std::int64_t images() const = 0;
  [[nodiscard]] virtual int size() const = 0;  ///< S, pixels across and down
  [[nodiscard]] std::size_t bytes() const {    ///< per image
    return 3 * static_cast<std::size_t>(size()) * static_cast<std::size_t>(size());
  }

  /// Writes image n: bytes [3, S, S].
  virtual void read(std::int64_t n, std::uint8_t* to) const = 0;
  [[nodiscard]] virtual std::int32_t label(std::int64_t n) const = 0;
};

}  // namespace ranvier::models
