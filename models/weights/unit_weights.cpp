#include "models/weights/unit_weights.hpp"

#include "models/tensor_runs.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace ranvier::models {
namespace {

const StoredTensor& tensor_for(const Safetensors& file, const ParameterSpec& parameter) {
  const StoredTensor* const tensor = file.find(parameter.name);
  if (tensor == nullptr)
    fail(ErrorCode::data, "{}: no tensor '{}' of shape {}: choose the model's sizes as in the file",
         file.path().string(), parameter.name, shape_text(parameter.tensor_shape()));
  if (tensor->shape != parameter.tensor_shape())
    fail(ErrorCode::data,
         "{}: tensor '{}' has shape {}, but the model needs {}: choose the model's sizes as in "
         "the file",
         file.path().string(), tensor->name, shape_text(tensor->shape), shape_text(parameter.tensor_shape()));
  if (!tensor->dtype)
    fail(ErrorCode::data, "{}: tensor '{}' has dtype {}: weights are read from F32, BF16 or F16",
         file.path().string(), tensor->name, tensor->dtype_name);
  return *tensor;
}

/// Weights that are no numbers would show in the first loss, and be blamed on the learning rate.
void check_finite(const Safetensors& file, const StoredTensor& tensor, std::size_t first,
                  std::span<const float> values) {
  const auto bad = std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  fail(ErrorCode::data,
       "{}: tensor '{}' has {} at element {}: the file is damaged, or of a training that diverged; start from other "
       "weights",
       file.path().string(), tensor.name, *bad, first + static_cast<std::size_t>(bad - values.begin()));
}

/// Calls f(parameter, first, count, at) for what [begin, end) of the unit covers, in runs that are `count` elements
/// of the parameter's tensor from `first` on; `at` is the place of `first` in the unit.
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

}  // namespace

void check_weights(const Safetensors& file, std::span<const UnitSpec> units) {
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters) static_cast<void>(tensor_for(file, parameter));
}

void read_unit(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::size_t end, float* to) {
  std::fill(to, to + (end - begin), 0.0f);
  for_each_part(unit, begin, end,
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  const StoredTensor& tensor = tensor_for(file, parameter);
                  float* const values = to + (at - begin);
                  file.read(tensor, first, first + count, values);
                  check_finite(file, tensor, first, {values, count});
                });
}

std::vector<TensorToStore> tensors_of(std::span<const UnitSpec> units, runtime::DType dtype) {
  std::vector<TensorToStore> tensors;
  std::set<std::string_view> known;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters)
      if (known.insert(parameter.name).second) tensors.push_back({parameter.name, dtype, parameter.tensor_shape()});
  return tensors;
}

void write_unit(SafetensorsWriter& writer, const UnitSpec& unit, std::size_t begin, std::size_t end,
                const float* values) {
  for_each_part(unit, begin, end,
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  writer.put(parameter.name, first, values + (at - begin), count);
                });
}

}  // namespace ranvier::models
