// A GPT that reads tokens and says what may follow: weights and a key-value cache on a device, and the logits of
// the next token. Tokens are read many at a time (a prompt) or one by one; what was read is not computed again.
//
//   GptDecoder decoder(*device, options, weights);
//   std::span<const float> logits = decoder.read(prompt);
//   logits = decoder.read({&token, 1});
//
// One thread at a time.
#pragma once

#include "models/gpt.hpp"
#include "models/ops/cached_attention.hpp"
#include "runtime/device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ranvier::models {

/// Writes elements [begin, begin + out.size()) of a flattened unit, as read_unit() and initialize() do.
using UnitSource = std::function<void(const UnitSpec& unit, std::size_t begin, std::span<float> out)>;

class GptDecoder {
 public:
  /// Weights, cache and activations have the type `options.precision.compute`; dropout and tiles do not matter. The
  /// device outlives the decoder. Throws ErrorCode::memory if they do not fit, and what `weights` throws.
  GptDecoder(runtime::Device& device, const GptOptions& options, const UnitSource& weights);
  ~GptDecoder();

  /// Reads tokens at the next positions and gives the logits [V] of the token after the last one, which are there
  /// until the next call. The order of sums does not depend on the number of threads. Throws ErrorCode::data for a
  /// token outside the vocabulary, after which the decoder is of no use, and ErrorCode::internal for none, or for
  /// more than the context has room for.
  std::span<const float> read(std::span<const std::int32_t> tokens);

  /// The next token is read at position 0.
  void forget() noexcept { positions_ = 0; }

  /// Tokens read since the start.
  [[nodiscard]] int positions() const noexcept { return positions_; }
  /// The most that positions() may become.
  [[nodiscard]] int context() const noexcept { return options_.sequence_length; }
  /// What reading one token reads of them: all but the tables' rows of other tokens and positions.
  [[nodiscard]] std::size_t weight_bytes() const noexcept { return read_bytes_; }
  /// What the cache holds for one position.
  [[nodiscard]] std::size_t cache_bytes_per_position() const noexcept;

 private:
  struct Block;   // where a transformer block's weights and its part of the cache are
  struct Arrays;  // where the activations of a call are

  void load(const UnitSource& weights);
  void load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                      const UnitSource& weights);
  void compute_token();
  void compute_block(const Block& block, const CachedAttentionShape& shape, bool first);
  void compute_logits(std::size_t rows);
  void norm(std::byte* y, const std::byte* weight, const std::byte* bias, std::size_t row, std::size_t rows,
            bool branch);
  /// y[rows, n] = x[rows, k] · weight[n, k]ᵀ + bias
  void product(std::byte* y, const std::byte* x, const std::byte* weight, const std::byte* bias, std::size_t rows,
               std::size_t n, std::size_t k);

  GptOptions options_;
  runtime::DType dtype_;
  std::size_t channels_;
  std::unique_ptr<runtime::Stream> stream_;
  runtime::Buffer weights_, cache_, workspace_;
  runtime::Buffer near_logits_;  ///< pinned, where the host does not reach the workspace: a copy of its logits
  const std::byte* logits_ = nullptr;  ///< where the host reads them
  std::unique_ptr<Arrays> at_;
  std::byte *tokens_table_ = nullptr, *positions_table_ = nullptr;
  std::byte *final_weight_ = nullptr, *final_bias_ = nullptr;
  std::vector<Block> blocks_;
  std::size_t read_bytes_ = 0;
  std::vector<float> staging_;
  std::vector<std::byte> narrow_, whole_;
  int positions_ = 0;
};

}  // namespace ranvier::models
