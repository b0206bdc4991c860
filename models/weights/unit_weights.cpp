#include "models/weights/unit_weights.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

const StoredTensor& tensor_for(const Safetensors& file, const ParameterSpec& parameter) {
  const StoredTensor* const tensor = file.find(parameter.name);
  if (tensor == nullptr)
    fail(ErrorCode::data, "{}: no tensor '{}' of shape {}: choose the model's sizes as in the file",
         file.path().string(), parameter.name, shape_text(parameter.shape));
  if (tensor->shape != parameter.shape)
    fail(ErrorCode::data,
         "{}: tensor '{}' has shape {}, but the model needs {}: choose the model's sizes as in "
         "the file",
         file.path().string(), tensor->name, shape_text(tensor->shape), shape_text(parameter.shape));
  if (!tensor->dtype)
    fail(ErrorCode::data, "{}: tensor '{}' has dtype {}: weights are read from F32, BF16 or F16",
         file.path().string(), tensor->name, tensor->dtype_name);
  return *tensor;
}

/// Calls f(parameter, first, last, at) for the elements [first, last) of each parameter that [begin, end) of
/// the unit covers; `at` is the place of `first` in the unit.
template <typename F>
void for_each_part(const UnitSpec& unit, std::size_t begin, std::size_t end, F&& f) {
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const std::size_t offset = unit.offset(i);
    const std::size_t first = std::max(begin, offset);
    const std::size_t last = std::min(end, offset + unit.parameters[i].elements());
    if (first < last) f(unit.parameters[i], first - offset, last - offset, first);
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
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t last, std::size_t at) {
                  file.read(tensor_for(file, parameter), first, last, to + (at - begin));
                });
}

std::vector<TensorToStore> tensors_of(std::span<const UnitSpec> units, runtime::DType dtype) {
  std::vector<TensorToStore> tensors;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters) tensors.push_back({parameter.name, dtype, parameter.shape});
  return tensors;
}

void append_unit(SafetensorsWriter& writer, const UnitSpec& unit, std::size_t begin, std::size_t end,
                 const float* values) {
  for_each_part(unit, begin, end, [&](const ParameterSpec&, std::size_t first, std::size_t last, std::size_t at) {
    writer.append(values + (at - begin), last - first);
  });
}

}  // namespace ranvier::models
