#include "apps/checkpoint/saved_training.hpp"

#include "apps/program/options.hpp"
#include "apps/view/history.hpp"
#include "models/core/lora.hpp"
#include "offload/checkpoint/folder.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;

std::string as_text(const boost::json::object& object, std::string_view name) {
  const auto* const value = object.if_contains(name);
  if (value == nullptr) return {};
  if (const auto* const text = value->if_string()) return std::string(*text);
  if (const auto* const number = value->if_double()) return fmt::format("{:.6g}", *number);
  return boost::json::serialize(*value);
}

/// Parameters that the run trained.
models::Tuning tuning_of(const offload::Manifest& manifest, const fs::path& checkpoint) {
  models::Tuning tuning = models::make_tuning(option_of_run(manifest, "train"), option_of_run(manifest, "freeze"));
  const std::string rank = option_of_run(manifest, "lora-rank"), alpha = option_of_run(manifest, "lora-alpha");
  const std::string dropout = option_of_run(manifest, "lora-dropout");
  if (rank.empty() || rank == "0") return tuning;
  const std::string modules = option_of_run(manifest, "lora-whole");
  models::LoraOptions lora{.targets = models::parse_targets(option_of_run(manifest, "lora-targets"))};
  if (modules != "none") lora.whole = models::parse_targets(modules);
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  if (whole(lora.rank, 1, models::max_lora_rank).read(rank) || real(lora.alpha, 0, infinity).read(alpha) ||
      lora.alpha == 0 || real(lora.dropout, 0, 1, true).read(dropout) || lora.targets.empty())
    fail(ErrorCode::data, "{}: invalid adapter options: --lora-rank '{}', --lora-alpha '{}', --lora-dropout '{}'",
         checkpoint.string(), rank, alpha, dropout);
  tuning.lora = std::make_shared<const models::LoraOptions>(std::move(lora));
  return tuning;
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
  std::error_code unknown;
  // A checkpoint has .data files; a folder of checkpoints has only subfolders and a lock.
  if (fs::exists(path / offload::Manifest::file_name, unknown)) return true;
  for (fs::directory_iterator entry(path, unknown), end; !unknown && entry != end; entry.increment(unknown))
    if (entry->path().extension() == ".data") return true;
  return false;
}

fs::path checkpoint_at(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown))
    fail(ErrorCode::data, "checkpoint not found: {}; use a checkpoint, or the folder of --checkpoint",
         path.string());
  if (is_checkpoint(path)) return path;
  std::vector<offload::CheckpointEntry> passed_over;
  if (const auto newest = offload::CheckpointFolder(path).newest_whole(&passed_over)) return newest->path;
  if (!passed_over.empty())
    fail(ErrorCode::data, "{}: none of {} checkpoints is complete; newest: {}", path.string(), passed_over.size(),
         passed_over.front().why_not);
  fail(ErrorCode::data, "no checkpoint in folder: {}; use a checkpoint, or the folder of --checkpoint",
       path.string());
}

std::string said_of_run(const offload::Manifest& manifest, std::string_view name) {
  return as_text(manifest.about, name);
}

std::string option_of_run(const offload::Manifest& manifest, std::string_view flag) {
  const auto* const options = object_of(manifest.about, "options");
  return options == nullptr ? std::string() : as_text(*options, flag);
}

std::optional<SavedModel> saved_model(const offload::Manifest& manifest, const fs::path& checkpoint) {
  const std::string config = said_of_run(manifest, "config");
  if (config.empty()) return std::nullopt;
  SavedModel model{
      .config = models::parse_model_config(config, checkpoint / "config.json"), .tuning = {}, .units = {}};
  models::ModelSizes sizes = model.config.sizes;
  int* const tiles = models::find_size(sizes, models::Size::tile);
  if (const std::string tile = option_of_run(manifest, "tile"); tiles != nullptr && !tile.empty()) {
    const bool is_number = !whole(*tiles, std::numeric_limits<int>::min()).read(tile);
    if (const auto problem = is_number ? models::size_problem(sizes) : std::optional<std::string>("not a number"))
      fail(ErrorCode::data, "{}: --tile of its run is '{}': {}", checkpoint.string(), tile, *problem);
  }
  const int layers = models::layers_of(sizes);
  // config.json is not verified yet; a wrong number of layers would allocate too much memory.
  if (static_cast<std::size_t>(layers) > manifest.arrays.size())
    fail(ErrorCode::data, "{}: config.json has {} layers, but the checkpoint has {} arrays", checkpoint.string(),
         layers, manifest.arrays.size());
  model.tuning = tuning_of(manifest, checkpoint);
  model.units = models::make_model(sizes, model.tuning).units();
  for (const models::UnitSpec& unit : model.units) {
    const auto array = std::ranges::find_if(
        manifest.arrays, [&](const auto& each) { return each.unit == unit.name && each.name == "weights"; });
    if (array == manifest.arrays.end())
      fail(ErrorCode::data, "{}: no weights of '{}', which config.json needs", checkpoint.string(), unit.name);
    if (array->elements != unit.elements())
      fail(ErrorCode::data, "{}: {} weights of '{}', but config.json needs {}", checkpoint.string(),
           array->elements, unit.name, unit.elements());
  }
  return model;
}

}  // namespace ranvier::apps
