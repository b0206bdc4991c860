// Pseudo-random order of samples, different in every epoch. It is computed from the sample number only, so it is the
// same on any grid and needs no memory. A Feistel network over Philox permutes the next power of four; numbers
// outside the range are permuted again (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Any thread.
#pragma once

#include "runtime/base/philox.hpp"

#include <cstdint>

namespace ranvier::models {

class SampleOrder {
 public:
  /// `samples` is at least 1.
  SampleOrder(std::int64_t samples, std::uint64_t seed);

  /// Sample at position `n`, from 0: one epoch contains each sample once.
  [[nodiscard]] std::int64_t operator()(std::int64_t n) const;

 private:
  [[nodiscard]] std::uint64_t permute(std::uint64_t index, std::uint64_t epoch) const;

  std::int64_t samples_;
  runtime::PhiloxKey key_;
  int half_bits_ = 0;  // half of the network's bits
};

}  // namespace ranvier::models
