// Describes models of the families that generate text, for Decoder. Pure data; any thread.
#pragma once

#include "models/families/model.hpp"
#include "models/generation/decoder.hpp"

namespace ranvier::models {

/// Ignores dropout and tiles. The options' sequence length becomes the context. Throws ErrorCode::usage for invalid
/// sizes.
[[nodiscard]] DecoderModel decoder_model(const GptOptions& options);
[[nodiscard]] DecoderModel decoder_model(const LlamaOptions& options);
/// Throws ErrorCode::internal for a masked language model, a text classifier or an image model.
[[nodiscard]] DecoderModel decoder_model(const ModelSizes& sizes);

}  // namespace ranvier::models
