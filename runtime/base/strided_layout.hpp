// Layout of an array in runs of equal length and distance: one slice of every row of a larger array. Kernels take it
// in one call, regardless of the number of runs. Plain data; any thread.
#pragma once

#include <cstddef>
#include <limits>

namespace ranvier::runtime {

struct StridedLayout {
  std::size_t run = 0;     ///< elements per run; 0: contiguous array
  std::size_t stride = 0;  ///< elements from the start of a run to the start of the next, at least `run`
  std::size_t first = 0;   ///< offset of element 0, counted within the runs

  [[nodiscard]] bool contiguous() const noexcept { return run == stride; }
  /// Offset of element `x` from the array's address, in elements.
  [[nodiscard]] std::size_t at(std::size_t x) const noexcept {
    return contiguous() ? first + x : (first + x) / run * stride + (first + x) % run;
  }
  /// Number of elements starting at `x` that are contiguous.
  [[nodiscard]] std::size_t together(std::size_t x) const noexcept {
    return contiguous() ? std::numeric_limits<std::size_t>::max() : run - (first + x) % run;
  }
};

}  // namespace ranvier::runtime
