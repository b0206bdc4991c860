// Contract of a model family: a struct of sizes whose members describe everything that other code asks about it. Adding
// a family: see the README. Pure; any thread.
//
//   struct GptOptions {
//     int layers = 12, …;                              // fields with a meaning of their own: see Options below
//     static std::span<const SizeField<GptOptions>> sizes();
//     …                                                // the members that ModelFamily lists
//   };
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/tuning.hpp"
#include "models/ops/attention.hpp"
#include "runtime/base/error.hpp"

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::models {

class ConfigFile;
class Safetensors;
struct LanguageModel;

/// Training task of a model. Only `next_token` models generate text; only `images` models read images.
enum class Task { next_token, masked_tokens, text_classes, images };

/// Sizes that users can set one by one.
enum class Size {
  layers,
  hidden,
  heads,
  kv_heads,
  head_size,
  ffn_size,
  vocab_size,
  sequence_length,
  window,
  tile,
  width,
  image_size,
  classes
};

/// All sizes with their names with dashes: "layers", "kv-heads".
[[nodiscard]] std::span<const std::pair<Size, std::string_view>> named_sizes() noexcept;

/// A size of a family: its field, its key in config.json (empty: none, or not simply the value), its minimum.
template <typename Options>
struct SizeField {
  Size size;
  int Options::* field;
  std::string_view key = {};
  int least = 1;
};

/// A model by name: a family with the user's sizes, or a preset.
template <typename Options>
struct NamedSizes {
  std::string_view name;
  bool is_preset;
  Options sizes;
};

/// Content of a config.json.
template <typename Options>
struct FamilyConfig {
  Options sizes;                              ///< the sequence length is the model's maximum
  std::map<std::string, float> dropout = {};  ///< rates by key; empty: the family has no dropout
};

/// Modules, by the last parts of their names, that LoRA adapts and (of a classification head) trains in full, unless
/// the user names others. PEFT's defaults.
struct AdapterModules {
  std::vector<std::string> targets;
  std::vector<std::string> whole = {};
};

/// Name in messages of a field such as "ffn_size". Default: the field in backquotes.
using SizeNames = std::function<std::string(std::string_view field)>;
[[nodiscard]] std::string quoted_field(std::string_view field);
/// The field of a size: "kv_heads".
[[nodiscard]] std::string field_name(Size size);

/// Members of a family. Further members are optional:
/// - language_model(): embedding, blocks and head as data; or make(tuning): layers of the family's own.
/// - stored(weights, config, heads): sizes from tensors; none if they are not this family's. `config`: sizes in
///   config.json, or null.
/// - set_all_sizes(): replaces zeros that stand for other sizes.
/// - inputs_first: matrices are stored [in, out].
/// - Fields dropout, positions (rows of a position table; 0: T), targets (limit of positions with logits), blocks,
///   tile, attention, fast_attention_backward.
template <typename Options>
concept ModelFamily = requires(Options& options, const Options& sizes, const ConfigFile& config,
                               const SizeNames& names, const std::string& like) {
  { Options::named() } -> std::same_as<std::span<const NamedSizes<Options>>>;
  { Options::sizes() } -> std::same_as<std::span<const SizeField<Options>>>;
  /// "llama" or "mistral": a name in messages.
  { sizes.family() } -> std::same_as<std::string_view>;
  { sizes.task() } -> std::same_as<Task>;
  /// Problem of sizes at or above their minimums, with a remedy; none if they are valid.
  { sizes.problem(names) } -> std::same_as<std::optional<std::string>>;
  /// Derives sizes that were not given: heads and inner width.
  { options.derive(true, true) } -> std::same_as<void>;
  /// Details of the computation that sizes do not show; equal texts compute identically.
  { sizes.computation() } -> std::same_as<std::string>;
  /// None: no adapters.
  { sizes.adapters() } -> std::same_as<std::optional<AdapterModules>>;
  /// Values of "model_type" in config.json.
  { std::span<const std::string_view>(Options::model_types) };
  /// Throws ErrorCode::data, naming file and key, for values that the family does not compute.
  { Options::read(config) } -> std::same_as<FamilyConfig<Options>>;
  /// The config.json for transformers' class with fp32 weights; `like`: the original, whose other keys are kept.
  { sizes.config_json(like) } -> std::same_as<std::string>;
  { options.precision } -> std::same_as<Precision&>;
};

// Checks of sizes with their messages; empty: no problem.

struct NamedSize {
  std::string name;
  int value = 0;
};
[[nodiscard]] std::optional<std::string> min_problem(int least, std::initializer_list<NamedSize> sizes);
/// Both must be positive.
[[nodiscard]] std::optional<std::string> divisor_problem(const NamedSize& size, const NamedSize& whole);
[[nodiscard]] std::optional<std::string> dropout_problem(std::string_view name, float rate);

/// Largest divisor of `whole` that is at most `wanted`; both are positive.
[[nodiscard]] int divisor_near(int wanted, int whole);

/// Number of heads: a divisor of the channels near hidden / 64.
[[nodiscard]] int default_heads(int hidden);
/// MLP width: numerator / denominator times hidden, rounded up to a multiple; at most 2^30.
[[nodiscard]] int inner_width(int hidden, int numerator, int denominator = 1, int multiple = 1);

/// Size that the number of tiles must divide, with its name in messages: "`hidden` 384".
struct TiledSize {
  std::string name;
  std::int64_t channels = 1;
};
/// Problem of this number of tiles per matrix, with a remedy.
[[nodiscard]] std::optional<std::string> tile_problem(std::string_view tile_name, int tile,
                                                      std::initializer_list<TiledSize> sizes);

/// Problem of invalid sizes, with a remedy; none if they are valid.
template <ModelFamily Options>
[[nodiscard]] std::optional<std::string> size_problem(const Options& options,
                                                      const SizeNames& names = quoted_field) {
  for (const auto& [size, field, key, least] : Options::sizes())
    if (auto problem = min_problem(least, {{names(field_name(size)), options.*field}})) return problem;
  if constexpr (requires { options.dropout; })
    if (auto problem = dropout_problem(names("dropout"), options.dropout)) return problem;
  return options.problem(names);
}

/// Throws ErrorCode::usage for invalid sizes, and ErrorCode::internal for an unsupported precision.
template <ModelFamily Options>
void expect_sizes(const Options& options) {
  if (const auto problem = size_problem(options)) fail(ErrorCode::usage, "{}", *problem);
  const Precision& precision = options.precision;
  expect(precision.gradient == runtime::DType::f32 || precision.gradient == precision.compute,
         "gradients are fp32 or of the compute type");
}

}  // namespace ranvier::models
