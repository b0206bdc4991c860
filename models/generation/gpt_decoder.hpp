// GPT-2's decoder. See decoder.hpp for what it does.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/gpt.hpp"

#include <vector>

namespace ranvier::models {

class GptDecoder final : public Decoder {
 public:
  /// Weights, cache and activations have the type `options.precision.compute`; dropout and tiles do not matter. The
  /// device outlives the decoder. Throws ErrorCode::memory if they do not fit, and what `weights` throws.
  GptDecoder(runtime::Device& device, const GptOptions& options, const UnitSource& weights);
  ~GptDecoder() override;

 private:
  struct Block;  // where a transformer block's weights are

  void load(const UnitSource& weights);
  void embed(const std::int32_t* tokens, std::size_t rows, int past) override;
  void compute_block(std::size_t block, const Tokens& tokens) override;
  void normalise(std::byte* y, const std::byte* weight, const std::byte* bias, const std::byte* x, std::size_t rows,
                 const std::byte* branch, std::byte* sum) override;

  GptOptions options_;
  std::size_t channels_;
  std::byte *tokens_table_ = nullptr, *positions_table_ = nullptr;
  std::vector<Block> blocks_;
};

}  // namespace ranvier::models
