#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/checkpoint/saved_training.hpp"
#include "apps/files/file_agreement.hpp"
#include "apps/tokenize/tokenize_options.hpp"
#include "models/families/adapter_files.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/partial_weights.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/unit_weights.hpp"
#include "offload/checkpoint/reader.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_elements = std::size_t{1} << 20;

/// Adds the tokenizer's files; returns a note if they cannot be read.
std::string add_tokenizer(const std::string& tokenizer, models::CompanionFiles& beside) {
  const std::string path = tokenizer_path(tokenizer);
  if (path.empty()) return {};
  try {
    for (const auto& [name, file] : models::tokenizer_files(path)) beside[name] = runtime::MemoryMap(file).text();
    return {};
  } catch (const Error&) {
    return fmt::format("tokenizer of the run cannot be read: {}; copy the tokenizer's files next to the weights\n",
                       path);
  }
}

void write_units(const models::WeightLayout& layout, const fs::path& partial,
                 std::span<const models::UnitSpec> units, const models::UnitSource& read) {
  models::WeightWriter writer(layout, partial);
  std::vector<float> values(piece_elements);
  for (const models::UnitSpec& unit : units) {
    for (std::size_t begin = 0; begin < unit.elements(); begin += piece_elements) {
      const auto piece = std::span(values).first(std::min(piece_elements, unit.elements() - begin));
      read(unit, begin, piece);
      writer.put(unit, begin, piece);
    }
  }
  writer.close();
}

/// Initial weights of the run (--init-from); none unless they are unchanged and readable.
std::optional<models::Safetensors> first_weights_of(const offload::Manifest& manifest) {
  const std::string from = said_of_run(manifest, "init-from");
  if (from.empty()) return std::nullopt;
  try {
    const fs::path path = models::find_weights(from, "--init-from");
    if (content_of_weights(path) != said_of_run(manifest, "init-from content")) return std::nullopt;
    return models::Safetensors(path, option_of_run(manifest, "ignore-tensors"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Writes the adapter; returns its bytes.
std::uint64_t write_adapter(const fs::path& folder, std::vector<models::UnitSpec> adapters,
                            const models::UnitSource& read, const std::string& config) {
  std::ranges::transform(adapters, adapters.begin(), models::in_peft_names);
  const models::WeightLayout layout(adapters, std::numeric_limits<std::uint64_t>::max());
  std::error_code unknown;
  fs::create_directories(folder, unknown);
  const fs::path hidden = models::partial_path(folder, "adapter", models::random_job());
  models::PartialWeights partial(folder / models::adapter_weights_name, models::PartialWeights::Kind::file, hidden,
                                 layout);
  write_units(layout, hidden, adapters, read);
  partial.commit({{models::adapter_config_name, config}});
  return layout.bytes();
}

}  // namespace

CheckpointToolResult export_weights(const CheckpointToolOptions& options) {
  const fs::path path = checkpoint_at(options.paths[0]), output = options.output;
  offload::CheckpointReader reader(path);
  const auto model = saved_model(reader.manifest(), path);
  if (!model)
    fail(ErrorCode::data,
         "{}: no config.json of a known model; export weights with the program that wrote the checkpoint",
         path.string());

  const models::LoraOptions* const lora = model->tuning.lora.get();
  if (options.merge && lora == nullptr)
    reject("--merge needs adapters, but the checkpoint has none: {}; remove --merge", path.string());
  std::error_code unknown;
  const std::vector<const char*> names =
      lora != nullptr && !options.merge
          ? std::vector{models::adapter_weights_name}
          : std::vector{models::WeightLayout::single_name, models::WeightLayout::index_name};
  for (const char* name : names)
    if (!options.overwrite && fs::exists(output / name, unknown))
      reject("--output {} has a {}; add --overwrite or use another folder", output.string(), name);
  const models::UnitSource read = [&reader](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    reader.read(unit.name, "weights", begin, out);
  };
  const std::vector<models::UnitSpec> adapters = models::adapter_units(model->units);
  if (lora != nullptr && !options.merge) {
    const std::string base = said_of_run(reader.manifest(), "init-from");
    const std::uint64_t bytes =
        write_adapter(output, adapters, read, models::adapter_config_json(*lora, base, model->config.sizes));
    return {fmt::format("adapter of step {}: {}: {}\n", reader.manifest().step, runtime::format_bytes(bytes),
                        output.string())};
  }
  std::optional<models::AdapterMerge> merge;
  if (lora != nullptr) merge.emplace(*lora, model->config.sizes, adapters, read);
  const std::vector<models::UnitSpec> units = models::base_units(model->units);

  models::CompanionFiles beside{{"config.json", model->config.text}};
  const std::string about_tokenizer = add_tokenizer(option_of_run(reader.manifest(), "tokenizer"), beside);
  const bool trains_all = std::ranges::all_of(units, &models::UnitSpec::trained);
  const auto first = trains_all ? std::nullopt : first_weights_of(reader.manifest());
  models::TensorTypes types = first ? models::untrained_types(*first, units) : models::TensorTypes();
  if (merge) std::erase_if(types, [&](const auto& type) { return merge->changes(type.first); });
  const models::WeightLayout layout(units, options.file_bytes, models::WeightLayout::single_name, types);
  fs::create_directories(output, unknown);
  const fs::path partial_folder = models::partial_path(output, "weights", models::random_job());
  models::PartialWeights partial(output, models::PartialWeights::Kind::folder, partial_folder, layout);
  write_units(layout, partial_folder, units,
              [&](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
                read(unit, begin, out);
                if (first && !unit.trained)
                  models::restore_values(*first, unit, begin, out, reader.find(unit.name, "weights")->dtype);
                if (merge) merge->add(unit, begin, out);
              });
  partial.commit(beside);
  const std::string from = said_of_run(reader.manifest(), "init-from");
  std::string about_untrained;
  if (!trains_all && !first && !from.empty())
    about_untrained = fmt::format(
        "untrained tensors are fp32 values of the checkpoint: --init-from {} of the run cannot be read or has "
        "changed; restore the initial weights and export again to keep these tensors unchanged\n",
        from);
  return {fmt::format("weights of step {}: {} in {} file{}: {}\n{}{}", reader.manifest().step,
                      runtime::format_bytes(layout.bytes()), layout.files().size(),
                      layout.files().size() > 1 ? "s" : "", output.string(), about_tokenizer, about_untrained)};
}

}  // namespace ranvier::apps
