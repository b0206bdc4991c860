// Numbers that all ranks agree on after a batch: sums over all ranks. A rank leaves zero where it has nothing to add.
// Loop thread only.
#pragma once

#include "actors/base/exact_sum.hpp"
#include "runtime/base/grid.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::actors {

class StepAgreement {
 public:
  explicit StepAgreement(runtime::GridShape grid) noexcept
      : rows_(static_cast<std::size_t>(grid.g_data)),
        timed_ranks_(rows_ > 1 ? static_cast<std::size_t>(grid.ranks()) : 0) {}

  /// Sets all numbers to zero. `layer_seconds`: how many layer times follow; 0: they are not exchanged.
  void reset(std::size_t layer_seconds) { numbers_.assign(layers_at() + layer_seconds, 0.0); }
  /// All numbers, for Consensus::agree(). Empty before the first reset().
  [[nodiscard]] std::vector<double>& numbers() noexcept { return numbers_; }

  /// Σ gradient².
  [[nodiscard]] std::span<double, ExactSum::words> squares() {
    return std::span(numbers_).first<ExactSum::words>();
  }
  /// Loss by row.
  [[nodiscard]] std::span<double> losses() { return std::span(numbers_).subspan(ExactSum::words, rows_); }
  /// Rank 0's checkpoint request: number of a series; 0: none.
  [[nodiscard]] double& checkpoint() { return numbers_[ExactSum::words + rows_]; }
  /// Above 0 if any rank has a stop request.
  [[nodiscard]] double& stop() { return numbers_[ExactSum::words + rows_ + 1]; }
  /// Seconds of passes by rank; empty with one row.
  [[nodiscard]] std::span<double> pass_seconds() {
    return std::span(numbers_).subspan(layers_at() - timed_ranks_, timed_ranks_);
  }
  /// Seconds by layer and direction, summed over rows; usually empty (split_timing.hpp).
  [[nodiscard]] std::span<double> layer_seconds() { return std::span(numbers_).subspan(layers_at()); }

 private:
  [[nodiscard]] std::size_t layers_at() const noexcept { return ExactSum::words + rows_ + 2 + timed_ranks_; }

  std::size_t rows_, timed_ranks_;
  std::vector<double> numbers_;
};

}  // namespace ranvier::actors
