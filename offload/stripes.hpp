// Mapping of the address space of a file tier to the files of several directories, in stripes, round robin. Pure data.
#pragma once

#include "runtime/base/arithmetic.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::offload {

/// Part of a transfer that one request can move.
struct StripeRange {
  std::size_t directory = 0;
  std::uint64_t offset = 0;  ///< offset in that directory's file
  std::size_t bytes = 0;
};

class Stripes {
 public:
  Stripes(std::size_t directories, std::size_t stripe_bytes)
      : directories_(directories), stripe_bytes_(stripe_bytes) {}

  /// First part of the range starting at `address`; the next starts at its end.
  [[nodiscard]] StripeRange first_piece(std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t stripe = address / stripe_bytes_, inside = address % stripe_bytes_;
    const std::uint64_t length = bytes < stripe_bytes_ - inside ? bytes : stripe_bytes_ - inside;
    return {static_cast<std::size_t>(stripe % directories_), stripe / directories_ * stripe_bytes_ + inside,
            static_cast<std::size_t>(length)};
  }

  /// Size of a directory's file for the addresses [0, end).
  [[nodiscard]] std::uint64_t file_bytes(std::size_t directory, std::uint64_t end) const {
    const std::uint64_t whole = end / stripe_bytes_, rest = end % stripe_bytes_;
    const std::uint64_t mine = whole / directories_ + (directory < whole % directories_ ? 1 : 0);
    return mine * stripe_bytes_ + (directory == whole % directories_ ? rest : 0);
  }

  /// Start of a region of `bytes` at or after `address`: large regions start on a stripe, to be split least.
  [[nodiscard]] std::uint64_t align(std::uint64_t address, std::uint64_t bytes) const {
    return bytes < stripe_bytes_ ? address : runtime::round_up(address, stripe_bytes_);
  }

 private:
  std::size_t directories_;
  std::uint64_t stripe_bytes_;
};

}  // namespace ranvier::offload
