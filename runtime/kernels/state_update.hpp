// Common part of the optimizers' kernels (adamw.hpp, momentum.hpp): checks, and on the host one loop over all elements
// with a rule for a few of them.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace ranvier::runtime {

/// Segments that one launch on a GPU takes; also the limit per block of moments in int8.
inline constexpr std::size_t max_launch_segments = 64;

/// Checks the arguments of a kernel of adamw.hpp or momentum.hpp; throws ErrorCode::internal. Whether there is an
/// element to update.
[[nodiscard]] bool has_work(const AdamWArrays& arrays, const AdamWRuns& runs,
                            const std::vector<DecaySegment>& segments, const AdamWOptions& options);

/// Whether m or v is in int8.
[[nodiscard]] inline bool in_blocks(const AdamWArrays& arrays) {
  return (arrays.m != nullptr && is_in_blocks(arrays.m_dtype)) ||
         (arrays.v != nullptr && is_in_blocks(arrays.v_dtype));
}

/// Number of elements whose position is below `position`.
[[nodiscard]] inline std::size_t elements_before(const StridedLayout& positions, std::size_t position) {
  if (positions.contiguous()) return position;
  const std::size_t run = position / positions.stride, in_run = position % positions.stride;
  return run * positions.run + (in_run < positions.run ? in_run : positions.run);
}

[[nodiscard]] inline bool has_elements(const StridedLayout& positions, const DecaySegment& segment) {
  return elements_before(positions, segment.begin) < elements_before(positions, segment.end);
}

/// Updates n elements in floats. The arrays are scratch memory for null ones of AdamWArrays.
using ElementsRule =
    std::function<void(float* weights, float* m, float* v, const float* gradient, std::size_t n, bool decays)>;
/// Queues the rule on the host for all elements in segments. Any thread may run it.
void update_states(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                   const std::vector<DecaySegment>& segments, const AdamWOptions& options, ElementsRule rule);

}  // namespace ranvier::runtime
