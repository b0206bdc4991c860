#include "models/generation/make_decoder.hpp"

#include "models/generation/gpt_decoder.hpp"
#include "models/generation/llama_decoder.hpp"

namespace ranvier::models {

std::unique_ptr<Decoder> make_decoder(runtime::Device& device, const ModelSizes& sizes, const UnitSource& weights) {
  if (const auto* const gpt = std::get_if<GptOptions>(&sizes))
    return std::make_unique<GptDecoder>(device, *gpt, weights);
  return std::make_unique<LlamaDecoder>(device, std::get<LlamaOptions>(sizes), weights);
}

}  // namespace ranvier::models
