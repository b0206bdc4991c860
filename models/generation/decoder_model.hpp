// What decoders compute of the families that write text. Pure data; any thread.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/model.hpp"

namespace ranvier::models {

/// Dropout and tiles do not matter. The options' sequence length is the positions that there is room for. Throws
/// ErrorCode::usage for sizes that make no model.
[[nodiscard]] DecoderModel decoder_model(const GptOptions& options);
[[nodiscard]] DecoderModel decoder_model(const LlamaOptions& options);
/// Throws ErrorCode::internal for a model that writes no text: one that fills masks or reads images.
[[nodiscard]] DecoderModel decoder_model(const ModelSizes& sizes);

}  // namespace ranvier::models
