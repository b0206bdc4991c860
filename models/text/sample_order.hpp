// In which order the samples of a data set are seen: a pseudo-random permutation, a new one for every epoch,
// computed from the sample number alone, so that it is the same on any grid and nothing is stored. A Feistel
// network over Philox permutes the next power of four; numbers that fall outside walk on until they are
// inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Any thread.
#pragma once

#include "runtime/philox.hpp"

#include <cstdint>

namespace ranvier::models {

class SampleOrder {
 public:
  /// Of `samples` samples, at least 1.
  SampleOrder(std::int64_t samples, std::uint64_t seed);

  /// Which sample is seen as number `n`, from 0: the numbers of one epoch give each sample once.
  [[nodiscard]] std::int64_t operator()(std::int64_t n) const;

 private:
  [[nodiscard]] std::uint64_t permute(std::uint64_t index, std::uint64_t epoch) const;

  std::int64_t samples_;
  runtime::PhiloxKey key_;
  int half_bits_ = 0;  // the network works on twice as many
};

}  // namespace ranvier::models
