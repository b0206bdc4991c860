// Between units, as ranks hold them, and weights files. A unit is its parameters flattened one after another,
// with gaps between them and padding inside them that files do not have: read as zeros, never written. Files have
// whole tensors, however they are cut into tiles.
// Any thread.
#pragma once

#include "models/layer.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/safetensors_writer.hpp"
#include "runtime/dtype.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ranvier::models {

/// Throws ErrorCode::data, naming file, tensor, what is there and what is wanted, unless the file has every
/// parameter of `units` with its shape (of `wpe.weight` at least so many rows: the first are taken) and a dtype
/// that can be read. Likewise for a tensor that no unit names: a model that needs it is another one. Those of a
/// GPT-2 that transformers makes itself may be there: attention masks, and an `lm_head.weight` that equals
/// `wte.weight` bit by bit.
void check_weights(const Safetensors& file, std::span<const UnitSpec> units);

/// Writes elements [begin, end) of the flattened unit. Throws like check_weights(), and ErrorCode::data, naming the
/// tensor, for a value that is infinite or none.
void read_unit(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::size_t end, float* to);

/// What a file with these units has, each tensor where the first of its parameters comes.
[[nodiscard]] std::vector<TensorToStore> tensors_of(std::span<const UnitSpec> units, runtime::DType dtype);

/// Puts what elements [begin, end) of the flattened unit have for the file where it belongs.
void write_unit(SafetensorsWriter& writer, const UnitSpec& unit, std::size_t begin, std::size_t end,
                const float* values);

}  // namespace ranvier::models
