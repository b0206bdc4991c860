#include "apps/checkpoint/weight_export.hpp"

#include "apps/checkpoint/saved_training.hpp"
#include "apps/tokenize/tokenize_options.hpp"
#include "models/text/tokenizer_files.hpp"
#include "models/weights/partial_weights.hpp"
#include "offload/checkpoint/reader.hpp"
#include "runtime/arena.hpp"
#include "runtime/error.hpp"
#include "runtime/memory_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <system_error>
#include <vector>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_elements = std::size_t{1} << 20;

/// Adds the tokenizer's files, or says where they would have to come from.
std::string add_tokenizer(const std::string& tokenizer, models::FilesBeside& beside) {
  const std::string path = tokenizer_path(tokenizer);
  if (path.empty()) return {};
  try {
    for (const auto& [name, file] : models::tokenizer_files(path)) {
      const runtime::MemoryMap content(file);
      beside[name] = {reinterpret_cast<const char*>(content.bytes().data()), content.bytes().size()};
    }
    return {};
  } catch (const Error&) {
    return fmt::format(
        "the tokenizer of the training, {}, cannot be read here: copy its files beside the weights\n", path);
  }
}

}  // namespace

std::string export_weights(const fs::path& given, const ExportOptions& options) {
  const fs::path path = checkpoint_at(given);
  std::error_code unknown;
  for (const char* name : {models::WeightLayout::single_name, models::WeightLayout::index_name})
    if (!options.overwrite && fs::exists(options.folder / name, unknown))
      fail(ErrorCode::usage, "--output {}: it has a {}: give another folder, or --overwrite",
           options.folder.string(), name);
  offload::CheckpointReader reader(path);
  const auto model = saved_model(reader.manifest(), path);
  if (!model)
    fail(ErrorCode::data,
         "{}: it has no config.json of a model that is known here: its program has to say "
         "what its units are",
         path.string());

  models::FilesBeside beside{{"config.json", model->config.text}};
  const std::string about_tokenizer = add_tokenizer(option_of_run(reader.manifest(), "tokenizer"), beside);
  const models::WeightLayout layout(model->units, options.file_bytes);
  fs::create_directories(options.folder, unknown);
  const fs::path partial_folder = models::partial_path(options.folder, "weights", models::random_job());
  models::PartialWeights partial(options.folder, models::PartialWeights::Kind::folder, partial_folder, layout);
  models::WeightWriter writer(layout, partial_folder);
  std::vector<float> values(piece_elements);
  for (const models::UnitSpec& unit : model->units) {
    for (std::size_t begin = 0; begin < unit.elements(); begin += piece_elements) {
      const auto piece = std::span(values).first(std::min(piece_elements, unit.elements() - begin));
      reader.read(unit.name, "weights", begin, piece);
      writer.put(unit, begin, piece);
    }
  }
  writer.close();
  partial.commit(beside);
  return fmt::format("weights of step {}: {} in {} file{}: {}\n{}", reader.manifest().step,
                     runtime::format_bytes(layout.bytes()), layout.files().size(),
                     layout.files().size() > 1 ? "s" : "", options.folder.string(), about_tokenizer);
}

}  // namespace ranvier::apps
