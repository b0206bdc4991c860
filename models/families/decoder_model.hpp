// Describes models that generate text, for Decoder. Pure data; any thread.
#pragma once

#include "models/families/model.hpp"
#include "models/generation/decoder.hpp"

namespace ranvier::models {

/// Ignores dropout and tiles. The sequence length becomes the context. Throws ErrorCode::usage for invalid sizes,
/// ErrorCode::internal for a masked language model, a text classifier or an image model.
[[nodiscard]] DecoderModel decoder_model(const ModelSizes& sizes);

}  // namespace ranvier::models
