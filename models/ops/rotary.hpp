// Rotary positions (Su et al. 2021) of queries and keys, in the layout of LLaMA's checkpoints. Channels c and c + D/2
// of a head are rotated by the angle of frequency c, for c < D/2. An angle is position times frequency, rounded to
// float as in transformers. Its sine and cosine are rounded once.
//
// Letters: B samples, T positions, G adjacent heads (of queries and keys), D channels per head.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ranvier::models {

/// Scaling of rotary frequencies for sequences longer than in the model's first training.
struct RopeScaling {
  enum class Kind {
    linear,  ///< every frequency divided by `factor`
    llama3,  ///< low frequencies divided, high ones unchanged, blended in between (LLaMA 3.1)
  };
  Kind kind = Kind::linear;
  double factor = 1;
  double low_frequency_factor = 1;   ///< llama3
  double high_frequency_factor = 4;  ///< llama3
  double original_positions = 8192;  ///< llama3: sequence length of the first training

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// Radians per position, for each pair of channels.
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
  inverse,  ///< rotates back; also the gradient of the forward rotation
};

struct RotaryShape {
  int samples = 1;               ///< B
  int positions = 1;             ///< T
  int heads = 1;                 ///< G
  std::size_t row_channels = 0;  ///< elements per position, at least G·D
};

/// Rotates the first G·D channels of each row of x[B, T, row_channels] in place. `positions` is [B, T]; if it is null,
/// each sample has positions first_position, first_position + 1, …. A row's result does not depend on other rows.
void rotary(runtime::StreamView stream, const RotaryShape& shape, runtime::DType dtype, void* x,
            const RotaryFrequencies& frequencies, Rotation rotation, const std::int32_t* positions = nullptr,
            int first_position = 0);

// GPU kernel.
decltype(rotary) rotary_cuda;

}  // namespace ranvier::models
