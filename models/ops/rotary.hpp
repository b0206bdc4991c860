// Rotary positions (Su et al. 2021) of queries and keys, as LLaMA's checkpoints have them: channels c and c + D/2 of a
// head are the coordinates that turn by the angle of frequency c, for c < D/2. An angle is the position times the
// frequency, rounded to float, as transformers computes it; its sine and cosine are rounded once.
//
// Letters: B samples, T positions, G heads (of queries and keys, which lie side by side), D channels of a head.
#pragma once

#include "models/ops/backends.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ranvier::models {

/// How rotary frequencies change for sequences longer than those that a model was trained on first.
struct RopeScaling {
  enum class Kind {
    linear,  ///< every frequency divided by `factor`
    llama3,  ///< low ones divided, high ones kept, those between blended (LLaMA 3.1)
  };
  Kind kind = Kind::linear;
  double factor = 1;
  double low_frequency_factor = 1;   ///< llama3
  double high_frequency_factor = 4;  ///< llama3
  double original_positions = 8192;  ///< llama3: of the first training

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Radians per position, of each pair of channels.
struct RotaryFrequencies {
  static constexpr int max_channels = 512;  ///< D

  int channels = 0;  ///< D
  float of_pair[max_channels / 2] = {};
};

/// base^(-2c/D), scaled. `channels` is even and at most RotaryFrequencies::max_channels.
[[nodiscard]] RotaryFrequencies rotary_frequencies(int channels, double base,
                                                   const std::optional<RopeScaling>& scaling = std::nullopt);

enum class Rotation {
  forward,
  inverse,  ///< what turns values back, and is the gradient of turning them forward
};

struct RotaryShape {
  int samples = 1;               ///< B
  int positions = 1;             ///< T
  int heads = 1;                 ///< G
  std::size_t row_channels = 0;  ///< elements from a position to the next, at least G·D
};

/// Turns the first G·D channels of each row of x[B, T, row_channels] in place, by the angles of its position: positions
/// [B, T], or where that is null first_position, first_position + 1, … in each sample. Every row is computed alike.
void rotary(runtime::StreamView stream, const RotaryShape& shape, runtime::DType dtype, void* x,
            const RotaryFrequencies& frequencies, Rotation rotation, const std::int32_t* positions = nullptr,
            int first_position = 0);

// Its kernels.
OnCpu<decltype(rotary)> rotary_cpu;
OnCuda<decltype(rotary)> rotary_cuda;

}  // namespace ranvier::models
