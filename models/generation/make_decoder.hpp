// The decoder of a model of any family that writes text (!fills_masks). One thread at a time.
#pragma once

#include "models/generation/decoder.hpp"
#include "models/model.hpp"

#include <memory>

namespace ranvier::models {

/// Weights, cache and activations have the precision of `sizes`; dropout and tiles do not matter. `sizes` says by its
/// sequence length how many positions there is room for. The device outlives the decoder. Throws ErrorCode::memory if
/// they do not fit, and what `weights` throws.
[[nodiscard]] std::unique_ptr<Decoder> make_decoder(runtime::Device& device, const ModelSizes& sizes,
                                                    const UnitSource& weights);

}  // namespace ranvier::models
