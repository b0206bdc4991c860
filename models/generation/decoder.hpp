// Computes the next token's logits with a language model's weights and a key-value cache on a device. Reads tokens one
// by one or many at a time (a prompt). Uses the modules of the training layers. One thread at a time.
//
//   Decoder decoder(*device, decoder_model(options), weights);
//   std::span<const float> logits = decoder.read(prompt);
//   logits = decoder.read({&token, 1});
#pragma once

#include "models/core/unit.hpp"
#include "models/modules/language_model.hpp"
#include "runtime/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

class Decoder {
 public:
  /// `model`: a causal language model without tiles. Its sequence length becomes the context. Weights, cache and
  /// activations have the type `model.precision.compute`. The device must outlive the decoder. Throws
  /// ErrorCode::memory if they do not fit, and the errors of `weights`.
  Decoder(runtime::Device& device, const LanguageModel& model, const UnitSource& weights);

  /// Reads tokens at the next positions. Returns the logits [V] of the token after the last one, valid until the next
  /// call. The order of sums does not depend on the number of threads. Throws ErrorCode::data for a token outside the
  /// vocabulary; the decoder is then unusable. Throws ErrorCode::internal if `tokens` is empty or exceeds the context.
  std::span<const float> read(std::span<const std::int32_t> tokens);

  /// Empties the cache: the next token is read at position 0.
  void forget() noexcept { positions_ = 0; }

  /// Tokens in the cache.
  [[nodiscard]] int positions() const noexcept { return positions_; }
  /// Maximum of positions().
  [[nodiscard]] int context() const noexcept { return context_; }
  /// V
  [[nodiscard]] std::size_t vocabulary() const noexcept { return vocabulary_; }
  /// Bytes of weights that reading one token reads: all except the tables' rows of other tokens and positions.
  [[nodiscard]] std::size_t weight_bytes() const noexcept { return read_bytes_; }
  /// Bytes of keys and values per position.
  [[nodiscard]] std::size_t cache_bytes_per_position() const noexcept {
    return 2 * blocks_.size() * sizes_.key_channels * size_of(dtype_);
  }

 private:
  struct Block {
    std::unique_ptr<DecodingLayer> layer;
    std::vector<const std::byte*> units;  ///< weights
  };

  void load(const LanguageModel& model, const UnitSource& weights);
  /// Writes one parameter to the device, as it is or transposed.
  void load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                      const UnitSource& weights);
  /// Allocates the cache and the workspace of calls.
  void plan();

  void embed(const std::int32_t* tokens, std::size_t rows, int past);
  void compute(std::size_t rows, Decoding text);
  [[nodiscard]] LayerCall call_of(std::size_t rows, std::span<const std::byte* const> units) const;

  const runtime::DType dtype_;  ///< type of weights, cache and activations
  const int context_;
  const std::size_t vocabulary_, channels_;
  std::unique_ptr<runtime::Stream> stream_;
  runtime::Buffer weights_, cache_, workspace_;
  std::size_t read_bytes_ = 0;
  const std::byte *words_ = nullptr, *position_rows_ = nullptr, *head_ = nullptr;  ///< tables
  std::vector<Block> blocks_;
  std::optional<Norm> last_norm_;
  std::vector<const std::byte*> last_norm_units_;

  DecodingLayer::DecodingSizes sizes_;
  DecodingLayer::DecodingArrays arrays_;
  // Offsets in the workspace.
  std::size_t tokens_ = 0, past_ = 0, logits_ = 0;
  runtime::Buffer near_logits_;             ///< pinned copy of the logits, if the host cannot read the workspace
  const std::byte* host_logits_ = nullptr;  ///< logits in host memory
  std::vector<float> staging_;
  std::vector<std::byte> narrow_, whole_;
  int positions_ = 0;
};

}  // namespace ranvier::models
