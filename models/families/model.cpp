#include "models/families/model.hpp"

#include "models/weights/config_file.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace ranvier::models {
namespace {

/// Calls f(family) with default sizes of each family.
template <typename F>
void for_each_family(F&& f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (f(std::variant_alternative_t<I, ModelSizes>()), ...);
  }(std::make_index_sequence<std::variant_size_v<ModelSizes>>());
}

std::string all_model_types() {
  std::vector<std::string_view> types;
  for_each_family(
      [&](const auto& family) { types.insert(types.end(), family.model_types.begin(), family.model_types.end()); });
  const std::string_view last = types.back();
  types.pop_back();
  return fmt::format("{} or {}", fmt::join(types, ", "), last);
}

}  // namespace

int* find_size(ModelSizes& sizes, Size which) noexcept {
  return std::visit(
      [&](auto& family) -> int* {
        for (const auto& size : family.sizes())
          if (size.size == which) return &(family.*size.field);
        return nullptr;
      },
      sizes);
}

int value_of(const ModelSizes& sizes, Size which) noexcept {
  ModelSizes copy = sizes;
  const int* const field = find_size(copy, which);
  return field == nullptr ? 0 : *field;
}

std::array<int, ResnetOptions::rows>* find_blocks(ModelSizes& sizes) noexcept {
  return std::visit(
      [](auto& family) -> std::array<int, ResnetOptions::rows>* {
        if constexpr (requires { family.blocks; }) return &family.blocks;
        return nullptr;
      },
      sizes);
}

int layers_of(const ModelSizes& sizes) noexcept {
  return std::visit(
      [](const auto& family) -> int {
        if constexpr (requires { family.layers(); })
          return family.layers();
        else
          return family.layers;
      },
      sizes);
}

int* find_positions(ModelSizes& sizes) noexcept {
  return std::visit(
      [](auto& family) -> int* {
        if constexpr (requires { family.positions; }) return &family.positions;
        return nullptr;
      },
      sizes);
}

float* find_dropout(ModelSizes& sizes) noexcept {
  return std::visit(
      [](auto& family) -> float* {
        if constexpr (requires { family.dropout; }) return &family.dropout;
        return nullptr;
      },
      sizes);
}

float dropout_of(const ModelSizes& sizes) noexcept {
  ModelSizes copy = sizes;
  const float* const rate = find_dropout(copy);
  return rate == nullptr ? 0 : *rate;
}

void set_precision(ModelSizes& sizes, const Precision& precision) noexcept {
  std::visit([&](auto& family) { family.precision = precision; }, sizes);
}

void set_attention(ModelSizes& sizes, AttentionKernels kernels, bool fast_backward) noexcept {
  std::visit(
      [&](auto& family) {
        if constexpr (requires { family.attention; }) {
          family.attention = kernels;
          family.fast_attention_backward = fast_backward;
        }
      },
      sizes);
}

void set_targets(ModelSizes& sizes, int targets) noexcept {
  if (!fills_masks(sizes)) return;
  std::visit(
      [&](auto& family) {
        if constexpr (requires { family.targets; }) family.targets = targets;
      },
      sizes);
}

std::string_view family_name(const ModelSizes& sizes) noexcept {
  return std::visit([](const auto& family) { return family.family(); }, sizes);
}

Task task_of(const ModelSizes& sizes) noexcept {
  return std::visit([](const auto& family) { return family.task(); }, sizes);
}

bool learns_positions(const ModelSizes& sizes) noexcept {
  ModelSizes copy = sizes;
  return find_positions(copy) != nullptr;
}

bool stores_inputs_first(const ModelSizes& sizes) noexcept {
  return std::visit([](const auto& family) { return requires { family.inputs_first; }; }, sizes);
}

std::optional<AdapterModules> default_adapters(const ModelSizes& sizes) {
  return std::visit([](const auto& family) { return family.adapters(); }, sizes);
}

std::string computation_of(const ModelSizes& sizes) {
  return std::visit([](const auto& family) { return family.computation(); }, sizes);
}

std::vector<NamedModel> named_models() {
  std::vector<NamedModel> names;
  for_each_family([&](const auto& family) {
    for (const auto& named : family.named()) names.push_back({named.name, named.is_preset});
  });
  return names;
}

std::optional<ModelSizes> named_model(std::string_view name) {
  std::optional<ModelSizes> found;
  for_each_family([&](const auto& family) {
    for (const auto& named : family.named())
      if (named.name == name) found = named.sizes;
  });
  return found;
}

bool is_preset(std::string_view name) {
  const auto names = named_models();
  return std::any_of(names.begin(), names.end(),
                     [&](const NamedModel& each) { return each.name == name && each.is_preset; });
}

void derive_sizes(ModelSizes& sizes, bool heads_given, bool ffn_size_given) {
  std::visit([&](auto& family) { family.derive(heads_given, ffn_size_given); }, sizes);
}

ModelSizes with_all_sizes(ModelSizes sizes) noexcept {
  std::visit(
      [](auto& family) {
        if constexpr (requires { family.set_all_sizes(); }) family.set_all_sizes();
      },
      sizes);
  return sizes;
}

std::optional<std::string> size_problem(const ModelSizes& sizes) {
  return std::visit([](const auto& family) { return size_problem(family); }, sizes);
}

std::optional<ModelConfig> read_model_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return parse_model_config(runtime::MemoryMap(path).text(), path);
}

ModelConfig parse_model_config(std::string_view text, const std::filesystem::path& path) {
  const ConfigFile config(text, path);
  std::string type = config.word("model_type");
  if (type.empty()) type = "gpt2";
  std::optional<ModelConfig> found;
  for_each_family([&]<typename Family>(const Family&) {
    if (std::ranges::find(Family::model_types, type) == Family::model_types.end()) return;
    config.require_unquantized();
    auto read = Family::read(config);
    found = {.sizes = read.sizes, .dropout = std::move(read.dropout), .text = std::string(text)};
  });
  if (!found) config.refuse("model_type", "the layers of " + all_model_types());
  return *std::move(found);
}

std::string model_config_json(const ModelSizes& sizes, const std::string& like) {
  return std::visit([&](const auto& family) { return family.config_json(like); }, sizes);
}

std::optional<StoredModel> stored_model(const Safetensors& weights, std::optional<int> heads) {
  const std::filesystem::path folder = weights.path().parent_path();
  const std::string file = (folder / "config.json").string();
  auto config = read_model_config(folder);
  std::optional<ModelSizes> found;
  for_each_family([&]<typename Family>(const Family&) {
    if constexpr (requires { Family::stored(weights, nullptr, heads); }) {
      const Family* const in_config = config ? std::get_if<Family>(&config->sizes) : nullptr;
      if (found) return;
      const bool is_other = config && in_config == nullptr;
      const auto sizes = Family::stored(weights, in_config, is_other ? 1 : heads);
      if (sizes && is_other)
        fail(ErrorCode::data, "{}: the model is {}, but {} has the tensors of {}; use files of one model", file,
             family_name(config->sizes), weights.path().string(), sizes->family());
      if (sizes) found = *sizes;
    }
  });
  if (found) return StoredModel{.sizes = std::move(*found), .config = std::move(config)};
  if (!config) return std::nullopt;
  const int said = value_of(config->sizes, Size::heads), layers = layers_of(config->sizes);
  if (heads && *heads != said)
    fail(ErrorCode::usage, "`heads` {} differs from {}: {}; remove `heads`", *heads, file, said);
  // Nothing has bounded the number yet, and each layer takes memory.
  if (static_cast<std::size_t>(layers) > weights.tensors().size())
    fail(ErrorCode::data, "{}: 'num_hidden_layers' is {}, but {} has only {} tensors; use files of one model", file,
         layers, weights.path().string(), weights.tensors().size());
  ModelSizes sizes = config->sizes;
  return StoredModel{.sizes = std::move(sizes), .config = std::move(config)};
}

}  // namespace ranvier::models
