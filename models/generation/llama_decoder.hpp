// The decoder of LLaMA's family. See decoder.hpp for what it does.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/llama.hpp"

#include <vector>

namespace ranvier::models {

class LlamaDecoder final : public Decoder {
 public:
  /// Weights, cache and activations have the type `options.precision.compute`; tiles do not matter. Keys are kept as
  /// they are after rotation. The device outlives the decoder. Throws ErrorCode::memory if they do not fit, and what
  /// `weights` throws.
  LlamaDecoder(runtime::Device& device, const LlamaOptions& options, const UnitSource& weights);
  ~LlamaDecoder() override;

 private:
  struct Block;  // where a transformer block's weights are

  void load(const UnitSource& weights);
  void embed(const std::int32_t* tokens, std::size_t rows, int past) override;
  void compute_block(std::size_t block, const Tokens& tokens) override;
  void normalise(std::byte* y, const std::byte* weight, const std::byte* bias, const std::byte* x, std::size_t rows,
                 const std::byte* branch, std::byte* sum) override;
  /// In place in `wide`: norms of heads, if there are any, then rotation.
  void turn_heads(const Block& block, const Tokens& tokens);

  LlamaOptions options_;
  std::size_t channels_, head_, queries_, key_channels_, inner_;  ///< C, D, H·D, K·D, F
  RotaryFrequencies frequencies_;
  const std::byte* words_ = nullptr;
  std::vector<Block> blocks_;
};

}  // namespace ranvier::models
