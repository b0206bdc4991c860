// An array whose elements lie in runs of equal length, equally far apart: one slice of every piece of something larger.
// Kernels take it in one call, however many runs there are. Plain data; any thread.
#pragma once

#include <cstddef>
#include <limits>

namespace ranvier::runtime {

struct Runs {
  std::size_t run = 0;     ///< elements; 0: all lie one after another
  std::size_t stride = 0;  ///< elements from the begin of a run to that of the next one, no fewer than `run`
  std::size_t first = 0;   ///< the place, counted through the runs, of element 0

  [[nodiscard]] bool contiguous() const noexcept { return run == stride; }
  /// Where element `x` lies, in elements from the array's address.
  [[nodiscard]] std::size_t at(std::size_t x) const noexcept {
    return contiguous() ? first + x : (first + x) / run * stride + (first + x) % run;
  }
  /// Elements from `x` on that lie one after another.
  [[nodiscard]] std::size_t together(std::size_t x) const noexcept {
    return contiguous() ? std::numeric_limits<std::size_t>::max() : run - (first + x) % run;
  }
};

}  // namespace ranvier::runtime
