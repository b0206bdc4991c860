// Common part of the kernels of adamw.hpp and momentum.hpp: rules of optimizers, and helpers for host and GPU.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::runtime {

// A rule has the factors of one step, computed once in double. The call updates n elements on the calling thread, in
// floats; the arrays do not overlap, and are scratch memory for null ones of UpdateArrays.

struct AdamWRule {
  static constexpr const char* name = "adamw";
  static constexpr bool has_weights = true;  ///< otherwise the working copy has the result, in fp32
  static constexpr bool has_v = true;        ///< uses second moments

  explicit AdamWRule(const UpdateOptions& options);
  void operator()(float* weights, float* m, float* v, const float* gradient, std::size_t n, bool decays) const;
  /// The factor on a weight that is left by weight decay.
  [[nodiscard]] float kept_of(bool decays) const { return decays ? kept : 1.0f; }

  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float step_size;   ///< lr / bias1
  float root_scale;  ///< 1 / √bias2
  float epsilon;
  float kept;  ///< 1 - lr · decay, for elements with weight decay
};

struct MomentumRule {
  static constexpr bool has_v = false;

  explicit MomentumRule(const UpdateOptions& options);
  [[nodiscard]] float kept_of(bool decays) const { return decays ? kept : kept_otherwise; }

  float gradient_scale;
  float momentum, one_minus_momentum;
  float learning_rate;
  float kept;  ///< as in AdamWRule
  float kept_otherwise = 1;
};

/// w = w · kept - lr · g without momentum.
struct SgdRule : MomentumRule {
  static constexpr const char* name = "sgd";
  static constexpr bool has_weights = true;

  void operator()(float* weights, float* m, float* v, const float* gradient, std::size_t n, bool decays) const;

  bool has_m;
};

/// Writes the update in place of weights.
struct MuonRule : MomentumRule {
  static constexpr const char* name = "muon_momentum";
  static constexpr bool has_weights = false;

  void operator()(float* update, float* m, float* v, const float* gradient, std::size_t n, bool decays) const;
};

/// Segments that one launch on a GPU takes; also the limit per block of moments in int8.
inline constexpr std::size_t max_launch_segments = 64;

/// Whether m or v is in int8.
[[nodiscard]] inline bool in_blocks(const UpdateArrays& arrays) {
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

namespace cpu {

/// Random numbers for stochastic rounding: 16 bits each for the weight, m and v of an element.
struct RoundingBits {
  static constexpr std::size_t max_elements = 256;

  [[nodiscard]] const std::uint16_t* weights() const { return all[0] + first; }
  [[nodiscard]] const std::uint16_t* m() const { return all[1] + first; }
  [[nodiscard]] const std::uint16_t* v() const { return all[2] + first; }

  std::size_t first = 0;
  std::uint16_t all[3][max_elements + 2];
};
/// Numbers of n elements starting at `position` of UpdateRuns::positions; at most RoundingBits::max_elements.
void draw(RoundingBits& bits, const RoundingOrigin& origin, std::uint32_t step, std::size_t position,
          std::size_t n);
/// Rounds values stochastically to bf16, in place.
void round_stochastically(float* values, const std::uint16_t* random, std::size_t n);

}  // namespace cpu

namespace cuda {

/// Queues the rule for all elements in segments. Arguments are checked by the caller. Loop thread only.
template <typename Rule>
void update_states(StreamView stream, const UpdateArrays& arrays, std::span<const DecaySegment> segments,
                   const UpdateOptions& options, const Rule& rule);

}  // namespace cuda
}  // namespace ranvier::runtime
