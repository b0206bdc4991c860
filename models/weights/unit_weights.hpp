// Between units, as ranks hold them, and weights files. A unit is its parameters flattened one after another,
// with gaps between them and padding inside them that files do not have: read as zeros, never written. Files have
// whole tensors, however they are cut into tiles.
// Any thread.
#pragma once

#include "models/layer.hpp"
#include "models/tensor_runs.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/safetensors_header.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Tensors by name that a file may lack.
using AbsentTensors = std::set<std::string, std::less<>>;

/// Those of a head for classes that the file has nothing of: a product that weights for masks lack, or BERT's pooler.
[[nodiscard]] AbsentTensors absent_head(const Safetensors& file, std::span<const UnitSpec> units);

/// Throws ErrorCode::data, naming file, tensor, what is there and what is wanted, unless the file has every
/// parameter of `units` with its shape (of positions at least so many rows: the first are taken) and a dtype that can
/// be read. Likewise for a tensor that no unit names: a model that needs it is another one. Those that transformers
/// makes itself may be there: attention masks, rotary frequencies, numbers of positions, an `lm_head.weight` or a
/// decoder's weight and bias that equal the others bit by bit; and what a BERT has for other tasks, its pooler and
/// `cls.seq_relationship`, or beside classes the head for masks. Of the units' parameters those of `absent` may be
/// missing.
void check_weights(const Safetensors& file, std::span<const UnitSpec> units, const AbsentTensors& absent = {});

/// Writes elements [begin, end) of the flattened unit, but for those of `absent` parameters and, where there are such,
/// the gaps. Throws like check_weights(), and ErrorCode::data, naming the tensor, for a value that is infinite or none.
void read_unit(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::size_t end, float* to,
               const AbsentTensors& absent = {});

/// Types in the file of the tensors of units that are not trained.
[[nodiscard]] TensorTypes untrained_types(const Safetensors& file, std::span<const UnitSpec> units);

/// Undoes the rounding to `held` of elements [begin, …) of a unit that is not trained: takes those values of the file
/// that round to the ones here.
void restore_values(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::span<float> values,
                    runtime::DType held);

/// What a file with these units has, each tensor where the first of its parameters comes.
[[nodiscard]] std::vector<TensorToStore> tensors_of(std::span<const UnitSpec> units,
                                                    runtime::DType dtype = runtime::DType::f32);

/// Calls f(parameter, first, count, at) for what [begin, end) of the unit covers, in runs that are `count` elements of
/// the parameter's tensor from `first` on; `at` is the place of `first` in the unit.
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
