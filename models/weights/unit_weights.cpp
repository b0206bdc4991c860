#include "models/weights/unit_weights.hpp"

#include "models/core/name_pattern.hpp"
#include "runtime/base/error.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace ranvier::models {
namespace {

/// Whether shapes match. A position table may have fewer rows than the file: the model uses the first ones.
bool fits(const std::vector<std::size_t>& stored, const ParameterSpec& parameter) {
  const auto& wanted = parameter.tensor_shape();
  const bool positions = parameter.name == "wpe.weight" || parameter.name.ends_with(".position_embeddings.weight");
  if (!positions || stored.size() != 2 || wanted.size() != 2) return stored == wanted;
  return stored[0] >= wanted[0] && stored[1] == wanted[1];
}

/// Finds a tensor, also under the names of old BERT files.
const StoredTensor* find(const Safetensors& file, std::string_view name) {
  const StoredTensor* tensor = file.find(name);
  for (const auto& [now, then] :
       {std::pair<std::string_view, std::string_view>{"LayerNorm.weight", "LayerNorm.gamma"},
        {"LayerNorm.bias", "LayerNorm.beta"}}) {
    if (tensor == nullptr && name.ends_with(now))
      tensor = file.find(std::string(name.substr(0, name.size() - now.size())).append(then));
  }
  return tensor;
}

const StoredTensor& tensor_for(const Safetensors& file, const ParameterSpec& parameter) {
  const StoredTensor* const tensor = find(file, parameter.name);
  if (tensor == nullptr)
    fail(ErrorCode::data, "{}: tensor '{}' of shape {} is missing; use the file's model sizes",
         file.path().string(), parameter.name, shape_text(parameter.tensor_shape()));
  if (!fits(tensor->shape, parameter))
    fail(ErrorCode::data, "{}: tensor '{}' has shape {}, but the model needs {}; use the file's model sizes",
         file.path().string(), tensor->name, shape_text(tensor->shape), shape_text(parameter.tensor_shape()));
  file.check_dtype(*tensor);
  return *tensor;
}

/// Throws for weights that are not finite; otherwise only the loss would show them, as if the learning rate were wrong.
void check_finite(const Safetensors& file, const StoredTensor& tensor, std::size_t first,
                  std::span<const float> values) {
  const auto bad = std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  fail(ErrorCode::data,
       "{}: tensor '{}' has {} at element {}: the file is damaged, or the run diverged; use other weights",
       file.path().string(), tensor.name, *bad, first + static_cast<std::size_t>(bad - values.begin()));
}

/// Whether no model uses the tensor with this name.
bool is_unused(std::string_view name) {
  static const NamePattern pattern(
      R"(^(transformer\.)?h\.\d+\.attn\.(masked_)?bias\z)"      // constants of transformers' causal mask
      R"(|\.rotary_emb\.inv_freq\z)"                            // constants of early LLaMA files
      R"(|\.embeddings\.position_ids\z)"                        // constants of BERT
      R"(|^cls\.seq_relationship\.|^(bert|roberta)\.pooler\.)"  // BERT's tensors for tasks other than masks
      R"(|\.num_batches_tracked\z)",                            // number of steps in running statistics
      "unused tensors");
  return pattern.matches_in(name);
}

/// Whether the tensor is in the masked-language head, which a text classifier may ignore.
bool is_beside_classes(std::string_view name) { return name.starts_with("cls.") || name.starts_with("lm_head."); }

/// Whether the tensor equals the tensor that this model ties it to. Call only if the model has no such tensor.
bool is_tied(const Safetensors& file, const StoredTensor& tensor) {
  using Pair = std::pair<std::string_view, std::string_view>;
  static constexpr std::array pairs{
      Pair{"lm_head.weight", "wte.weight"},
      Pair{"lm_head.weight", "model.embed_tokens.weight"},
      Pair{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
      Pair{"cls.predictions.decoder.bias", "cls.predictions.bias"},
      Pair{"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
      Pair{"lm_head.decoder.bias", "lm_head.bias"},
  };
  for (const auto& [name, original] : pairs) {
    const StoredTensor* const same = tensor.name == name ? file.find(original) : nullptr;
    if (same == nullptr) continue;
    if (file.equal(tensor, *same)) return true;
    fail(ErrorCode::data,
         "{}: tensor '{}' differs from '{}', but this model ties them; use weights of this model, "
         "or add `ignore_tensors` {}",
         file.path().string(), tensor.name, same->name, tensor.name);
  }
  return false;
}

}  // namespace

AbsentTensors absent_head(const Safetensors& file, std::span<const UnitSpec> units) {
  AbsentTensors absent;
  for (const std::string_view part : {"classifier.", "bert.pooler."}) {
    AbsentTensors of_part;
    for (const auto& unit : units)
      for (const auto& parameter : unit.parameters)
        if (parameter.name.starts_with(part)) of_part.insert(parameter.name);
    const auto is_there = [&](const std::string& name) { return find(file, name) != nullptr; };
    if (std::none_of(of_part.begin(), of_part.end(), is_there)) absent.merge(of_part);
  }
  return absent;
}

void check_weights(const Safetensors& file, std::span<const UnitSpec> units, const AbsentTensors& absent) {
  std::set<const StoredTensor*> used;
  bool classifies = false;
  for (const auto& unit : units)
    for (const auto& parameter : unit.parameters) {
      classifies = classifies || parameter.name.starts_with("classifier.");
      if (!absent.contains(parameter.name)) used.insert(&tensor_for(file, parameter));
    }
  const StoredTensor* unknown = nullptr;
  std::size_t others = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    if (used.contains(&tensor) || is_unused(tensor.name) || (classifies && is_beside_classes(tensor.name)) ||
        is_tied(file, tensor))
      continue;
    if (unknown != nullptr) ++others;
    if (unknown == nullptr) unknown = &tensor;
  }
  if (unknown == nullptr) return;
  fail(ErrorCode::data,
       "{}: tensor '{}'{} not part of this model; use weights of this model, or add `ignore_tensors` REGEX",
       file.path().string(), unknown->name, others == 0 ? " is" : fmt::format(" and {} more are", others));
}

void read_unit(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::size_t end, float* to,
               const AbsentTensors& absent) {
  if (absent.empty()) std::fill(to, to + (end - begin), 0.0f);
  for_each_part(unit, begin, end,
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  if (absent.contains(parameter.name)) return;
                  const StoredTensor& tensor = tensor_for(file, parameter);
                  float* const values = to + (at - begin);
                  file.read(tensor, first, first + count, values);
                  check_finite(file, tensor, first, {values, count});
                });
}

namespace {

/// Null unless the file has the parameter's tensor, of its shape and a type that can be read.
const StoredTensor* same_tensor(const Safetensors& file, const ParameterSpec& parameter) {
  const StoredTensor* const tensor = find(file, parameter.name);
  return tensor != nullptr && tensor->dtype && tensor->shape == parameter.tensor_shape() ? tensor : nullptr;
}

}  // namespace

TensorTypes untrained_types(const Safetensors& file, std::span<const UnitSpec> units) {
  TensorTypes types;
  for (const UnitSpec& unit : units) {
    if (unit.trained) continue;
    for (const ParameterSpec& parameter : unit.parameters)
      if (const StoredTensor* const tensor = same_tensor(file, parameter)) types[parameter.name] = *tensor->dtype;
  }
  return types;
}

void restore_values(const Safetensors& file, const UnitSpec& unit, std::size_t begin, std::span<float> values,
                    runtime::DType held) {
  std::vector<float> stored;
  for_each_part(unit, begin, begin + values.size(),
                [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
                  const StoredTensor* const tensor = same_tensor(file, parameter);
                  if (tensor == nullptr) return;
                  stored.resize(count);
                  file.read(*tensor, first, first + count, stored.data());
                  runtime::with_float_type(held, [&](auto type) {
                    for (std::size_t i = 0; i < count; ++i) {
                      float& value = values[at - begin + i];
                      const float rounded = runtime::to_float(runtime::from_float<decltype(type)>(stored[i]));
                      if (std::bit_cast<std::uint32_t>(rounded) == std::bit_cast<std::uint32_t>(value))
                        value = stored[i];
                    }
                  });
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

}  // namespace ranvier::models
