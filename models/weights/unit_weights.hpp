// Converts between units, as ranks store them, and weights files. A unit is its parameters, flattened in order, with
// gaps and padding that files do not contain: zeros when read, never written. Files contain complete tensors,
// regardless of tiling. Any thread.
#pragma once

#include "models/core/layer.hpp"
#include "models/core/unit.hpp"
#include "models/weights/safetensors.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Names of tensors that a file may lack.
using AbsentTensors = std::set<std::string, std::less<>>;

/// Tensors of a classification head that the file lacks completely: a matrix that weights for masked language
/// modelling do not have, or BERT's pooler.
[[nodiscard]] AbsentTensors absent_head(const Safetensors& file, std::span<const UnitSpec> units);

/// Checks that the file has every parameter of `units` with its shape and a supported dtype; position tables may have
/// more rows, of which the first are used. Parameters in `absent` may be missing. Throws ErrorCode::data, naming
/// file, tensor, actual and expected shape.
///
/// Throws, too, for a tensor that no unit uses, with exceptions. These are tensors that transformers creates itself:
/// attention masks, rotary frequencies, position numbers, and an `lm_head.weight` or decoder weight and bias equal to
/// the tied ones. Also a BERT's pooler and `cls.seq_relationship`, and its masked-language head next to a
/// classification head.
void check_weights(const Safetensors& file, std::span<const UnitSpec> units, const AbsentTensors& absent = {});

/// Reads elements [begin, end) of the flattened unit, except `absent` parameters and, if there are any, the gaps.
/// Throws like check_weights(), and ErrorCode::data, naming the tensor, for an infinite or NaN value.
void read_unit(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::size_t end, float* to,
               const AbsentTensors& absent = {});

/// Dtypes in the file of tensors in frozen units.
[[nodiscard]] TensorTypes untrained_types(const Safetensors& file, std::span<const UnitSpec> units);

/// Undoes the rounding to `held` of elements [begin, …) of a frozen unit: restores the file's values that round to
/// the given ones.
void restore_values(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::span<float> values,
                    runtime::DType held);

/// Tensors of a file with these units, in the order of their first parameters.
[[nodiscard]] std::vector<TensorToStore> tensors_of(std::span<const UnitSpec> units,
                                                    runtime::DType dtype = runtime::DType::f32);

/// Calls f(parameter, first, count, at) for the parts of [begin, end): `count` elements of the parameter's tensor
/// starting at `first`; `at` is the position of `first` in the unit.
template <typename F>
void for_each_part(const UnitSpec& unit, std::size_t begin, std::size_t end, F&& f) {
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const std::size_t offset = unit.offset(i);
    const std::size_t first = std::max(begin, offset);
    const std::size_t last = std::min(end, offset + unit.parameters[i].elements());
    if (first >= last) continue;
    for_each_run(unit.parameters[i], first - offset, last - offset,
                 [&](std::size_t run, std::size_t count, std::size_t at) {
                   f(unit.parameters[i], run, count, offset + at);
                 });
  }
}

}  // namespace ranvier::models
