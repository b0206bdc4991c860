// A language model that reads tokens and says what may follow: weights and a key-value cache on a device, and the
// logits of the next token. Tokens are read many at a time (a prompt) or one by one; what was read is not computed
// again. Each family has its own decoder, which loads weights and computes blocks:
//
//   std::unique_ptr<Decoder> decoder = std::make_unique<GptDecoder>(*device, options, weights);
//   std::span<const float> logits = decoder->read(prompt);
//   logits = decoder->read({&token, 1});
//
// One thread at a time.
#pragma once

#include "models/layer.hpp"
#include "models/memory_layout.hpp"
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

class Decoder {
 public:
  virtual ~Decoder() = default;

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
  [[nodiscard]] int context() const noexcept { return sizes_.context; }
  /// V
  [[nodiscard]] std::size_t vocabulary() const noexcept { return sizes_.vocabulary; }
  /// What reading one token reads of them: all but the tables' rows of other tokens and positions.
  [[nodiscard]] std::size_t weight_bytes() const noexcept { return read_bytes_; }
  /// What the cache holds for one position.
  [[nodiscard]] std::size_t cache_bytes_per_position() const noexcept {
    return 2 * sizes_.blocks * sizes_.key_channels * size_of(dtype_);
  }

 protected:
  struct Sizes {
    int context = 1;             ///< T
    std::size_t vocabulary = 0;  ///< V
    std::size_t channels = 0;    ///< C
    std::size_t blocks = 0;
    std::size_t key_channels = 0;  ///< of all keys, and of all values, of a position in a block
    std::size_t normal = 0;        ///< channels of the array for what goes into products
    std::size_t wide = 0;          ///< and of that for what comes out of them
    std::size_t heads = 0;         ///< H
    std::size_t scratch_bytes = 0;
  };

  /// Of a call's tokens: how many, and how many were read before, which the device knows as well, so that the work for
  /// one token is the same whatever its position.
  struct Tokens {
    std::size_t rows = 1;
    int past = 0;                              ///< not known where past_place is given
    const std::int32_t* past_place = nullptr;  ///< in the device's memory
  };

  Decoder(runtime::Device& device, runtime::DType dtype);
  /// Allocates the cache and what calls need.
  void plan(const Sizes& sizes);

  /// Writes one parameter to the device, as it is or transposed. Only before the first read().
  void load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                      const UnitSource& weights);

  /// x[N, C] of tokens[N] at positions `past` and the next.
  virtual void embed(const std::int32_t* tokens, std::size_t rows, int past) = 0;
  /// Block by block: reads x + branch, but in the first block x alone, and leaves what it adds to x in branch.
  virtual void compute_block(std::size_t block, const Tokens& tokens) = 0;
  /// y[rows, C] = the family's norm of rows of x, or of x + branch, which then goes to `sum`.
  virtual void normalise(std::byte* y, const std::byte* weight, const std::byte* bias, const std::byte* x,
                         std::size_t rows, const std::byte* branch, std::byte* sum) = 0;

  /// normal = norm of x + branch, which x is afterwards; or where `first`, of x.
  void norm(const std::byte* weight, const std::byte* bias, std::size_t rows, bool first = false);
  /// y[rows, n] = x[rows, k] · weight[n, k]ᵀ + bias
  void product(std::byte* y, const std::byte* x, const std::byte* weight, const std::byte* bias, std::size_t rows,
               std::size_t n, std::size_t k);

  [[nodiscard]] std::byte* keys(std::size_t block) const;
  [[nodiscard]] std::byte* values(std::size_t block) const;
  // A call's arrays.
  [[nodiscard]] std::byte* x() const { return workspace_.data() + x_; }
  [[nodiscard]] std::byte* branch() const { return workspace_.data() + branch_; }
  [[nodiscard]] std::byte* normal() const { return workspace_.data() + normal_; }
  [[nodiscard]] std::byte* wide() const { return workspace_.data() + wide_; }
  [[nodiscard]] float* moments(std::size_t which) const;  ///< [T], two of them
  [[nodiscard]] float* logsumexp() const { return reinterpret_cast<float*>(workspace_.data() + logsumexp_); }
  [[nodiscard]] std::byte* scratch() const { return workspace_.data() + scratch_; }

  const runtime::DType dtype_;  ///< of weights, cache and activations
  std::unique_ptr<runtime::Stream> stream_;
  runtime::Buffer weights_;
  std::size_t read_bytes_ = 0;
  /// The last norm, and the rows [V, C] whose products with its result are logits.
  const std::byte *final_weight_ = nullptr, *final_bias_ = nullptr, *logit_table_ = nullptr;

 private:
  void compute(const Tokens& tokens);

  Sizes sizes_;
  runtime::Buffer cache_, workspace_;
  runtime::Buffer near_logits_;  ///< pinned, where the host does not reach the workspace: a copy of its logits
  const std::byte* host_logits_ = nullptr;  ///< where the host reads them
  // Offsets in the workspace.
  std::size_t tokens_ = 0, past_ = 0, moments_ = 0, logsumexp_ = 0, branch_ = 0, normal_ = 0, wide_ = 0,
              logits_ = 0, scratch_ = 0;
  std::size_t x_ = 0, sum_ = 0;  ///< [T, C]: change places with every sum
  std::vector<float> staging_;
  std::vector<std::byte> narrow_, whole_;
  int positions_ = 0;
};

}  // namespace ranvier::models
