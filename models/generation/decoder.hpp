// A language model that reads tokens and says what may follow: weights and a key-value cache on a device, and the
// logits of the next token. Tokens are read many at a time (a prompt) or one by one; what was read is not computed
// again. It computes with the layers' own parts, by a family's description of its model (decoder_model.hpp):
//
//   Decoder decoder(*device, decoder_model(options), weights);
//   std::span<const float> logits = decoder.read(prompt);
//   logits = decoder.read({&token, 1});
//
// One thread at a time.
#pragma once

#include "models/modules/norm.hpp"
#include "models/modules/pre_norm_block.hpp"
#include "models/unit_source.hpp"
#include "runtime/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// What a decoder computes: a row of a table per token, and perhaps one of another per position, blocks, a norm, and
/// products with rows of a table.
struct DecoderModel {
  int context = 1;                          ///< T
  std::size_t vocabulary = 0;               ///< V
  std::vector<UnitSpec> units;              ///< the model's, by which weights are asked for
  std::vector<PreNormBlockOptions> blocks;  ///< whole, in the precision of the weights in memory
  NormOptions norm;                         ///< the last one
  // Names of tables and norm, without ".weight".
  std::string words;
  std::string positions;  ///< empty: there is none
  std::string last_norm;
  std::string head;
};

class Decoder {
 public:
  /// Weights, cache and activations have the type `model.norm.precision.compute`. The device outlives the decoder.
  /// Throws ErrorCode::memory if they do not fit, and what `weights` throws.
  Decoder(runtime::Device& device, const DecoderModel& model, const UnitSource& weights);

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
  [[nodiscard]] int context() const noexcept { return context_; }
  /// V
  [[nodiscard]] std::size_t vocabulary() const noexcept { return vocabulary_; }
  /// What reading one token reads of them: all but the tables' rows of other tokens and positions.
  [[nodiscard]] std::size_t weight_bytes() const noexcept { return read_bytes_; }
  /// What the cache holds for one position.
  [[nodiscard]] std::size_t cache_bytes_per_position() const noexcept {
    return 2 * blocks_.size() * sizes_.key_channels * size_of(dtype_);
  }

 private:
  struct Block {
    std::unique_ptr<DecodingLayer> layer;
    std::vector<const std::byte*> units;  ///< weights
  };

  void load(const DecoderModel& model, const UnitSource& weights);
  /// Writes one parameter to the device, as it is or transposed.
  void load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                      const UnitSource& weights);
  /// Allocates the cache and what calls need.
  void plan();

  void embed(const std::int32_t* tokens, std::size_t rows, int past);
  void compute(std::size_t rows, Decoding text);
  [[nodiscard]] LayerCall call_of(std::size_t rows, std::span<const std::byte* const> units) const;

  const runtime::DType dtype_;  ///< of weights, cache and activations
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
  runtime::Buffer near_logits_;  ///< pinned, where the host does not reach the workspace: a copy of its logits
  const std::byte* host_logits_ = nullptr;  ///< where the host reads them
  std::vector<float> staging_;
  std::vector<std::byte> narrow_, whole_;
  int positions_ = 0;
};

}  // namespace ranvier::models
