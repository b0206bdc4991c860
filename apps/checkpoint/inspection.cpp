#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/checkpoint/saved_training.hpp"
#include "apps/program/flag_names.hpp"
#include "apps/view/history.hpp"
#include "models/weights/partial_weights.hpp"
#include "offload/checkpoint/folder.hpp"
#include "offload/checkpoint/reader.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;
using offload::CheckpointEntry;
using offload::CheckpointFolder;
using offload::Manifest;

void check_folder(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown))
    fail(ErrorCode::data, "checkpoint folder not found: {}; use the folder of --checkpoint", folder.string());
}

/// Total bytes of the regular files in a folder.
std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    std::error_code unknown;
    const std::uintmax_t bytes = entry->file_size(unknown);
    if (!unknown) sum += bytes;
  }
  return sum;
}

std::string states_table(const Manifest& manifest) {
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> states;  // number of arrays, bytes
  for (const offload::CheckpointArray& array : manifest.arrays) {
    auto& [arrays, bytes] = states[array.name];
    ++arrays;
    bytes += runtime::bytes_of(array.dtype, array.elements);
  }
  std::string text = fmt::format("  {:<10}{:>8}{:>14}\n", "state", "arrays", "bytes");
  for (const auto& [name, sums] : states)
    text += fmt::format("  {:<10}{:>8}{:>14}\n", name, sums.first, runtime::format_bytes(sums.second));
  return text;
}

/// Lines about folders that are not complete checkpoints: step-N.JOB.part, step-N.left.
std::string others_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && (name.ends_with(".part") || name.find(".left") != std::string::npos))
      found.push_back(entry->path());
  }
  std::ranges::sort(found);
  std::string text;
  for (const fs::path& path : found) {
    const std::string name = path.filename().string();
    const bool part = name.ends_with(".part");
    text += fmt::format(
        "{}: {} so far, {}\n", name, runtime::format_bytes(bytes_in(path)),
        part ? "being written, or left by a dead job" : "superseded, as a run resumed from an earlier checkpoint");
  }
  return text;
}

}  // namespace

CheckpointToolResult list_checkpoints(const CheckpointToolOptions& options) {
  const fs::path folder = options.paths[0];
  check_folder(folder);
  const std::vector<CheckpointEntry> entries = CheckpointFolder(folder).list();
  std::string table, not_whole;
  for (const CheckpointEntry& entry : entries) {
    std::string why_not = entry.why_not;
    try {
      if (entry.whole) {
        const Manifest manifest = offload::read_manifest(offload::system_storage(), entry.path);
        table += fmt::format("{:<20}{:>10}{:>12}{:>10}{:>7}  {}\n", entry.path.filename().string(), entry.step,
                             runtime::format_bytes(manifest.data_bytes()), said_of_run(manifest, "loss"),
                             said_of_run(manifest, "grid"), said_of_run(manifest, "time"));
        continue;
      }
    } catch (const Error& error) {  // removed by its job in the meantime
      why_not = error.what();
    }
    not_whole += fmt::format("{}: incomplete: {}\n", entry.path.filename().string(), with_flags(why_not));
  }
  std::string text = table.empty() ? fmt::format("{}: no complete checkpoint\n", folder.string())
                                   : fmt::format("{:<20}{:>10}{:>12}{:>10}{:>7}  {}\n", "checkpoint", "step",
                                                 "size", "loss", "grid", "time") +
                                         table;
  text += not_whole + others_in(folder);
  std::ifstream lock(folder / "lock");
  std::string job(256, '\0');
  lock.read(job.data(), static_cast<std::streamsize>(job.size()));
  job.resize(static_cast<std::size_t>(lock.gcount()));
  if (!job.empty()) text += fmt::format("last locked by {}\n", job);
  return {text};
}

CheckpointToolResult show_checkpoint(const CheckpointToolOptions& asked) {
  const fs::path path = checkpoint_at(asked.paths[0]);
  const Manifest manifest = offload::open_checkpoint(offload::system_storage(), path);
  std::string text = fmt::format("{}\n", path.string());
  const auto line = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<12}{}\n", name, value);
  };
  line("step", fmt::format("{}", manifest.step));
  for (const char* name : {"loss", "time", "training", "version", "commit", "grid"})
    line(name, said_of_run(manifest, name));
  line("data", fmt::format("{} in {} files, {} segments", runtime::format_bytes(manifest.data_bytes()),
                           manifest.files.size(), manifest.pieces.size()));
  if (const auto model = saved_model(manifest, path)) {
    const models::WeightLayout layout(model->units);
    const auto size = [&](models::Size which) { return models::value_of(model->config.sizes, which); };
    const std::string sizes =
        models::reads_images(model->config.sizes)
            ? fmt::format("{}, {} classes", models::make_model(model->config.sizes).name,
                          size(models::Size::classes))
            : fmt::format("{} {} × {}, {} heads, {} tokens", models::family_name(model->config.sizes),
                          size(models::Size::layers), size(models::Size::hidden), size(models::Size::heads),
                          size(models::Size::vocab_size));
    line("model", fmt::format("{}, {} parameters", sizes, layout.elements()));
  }
  text += fmt::format("\n{}\ntraining\n", states_table(manifest));
  for (const auto& [name, value] : manifest.training) {
    const auto* const as_text = value.if_string();
    text += fmt::format("  {:<20}{}\n", std::string_view(name),
                        as_text != nullptr ? std::string(*as_text) : boost::json::serialize(value));
  }
  if (const auto* const options = object_of(manifest.about, "options")) {
    text += "\noptions\n";
    for (const auto& [name, value] : *options)
      text += fmt::format("  --{:<22}{}\n", std::string_view(name), option_of_run(manifest, name));
  }
  return {text};
}

CheckpointToolResult verify_checkpoints(const CheckpointToolOptions& options) {
  const fs::path path = options.paths[0];
  std::vector<fs::path> checkpoints;
  if (is_checkpoint(path)) {
    checkpoints.push_back(path);
  } else {
    check_folder(path);
    for (const CheckpointEntry& entry : CheckpointFolder(path).list()) checkpoints.push_back(entry.path);
    if (checkpoints.empty())
      fail(ErrorCode::data, "no checkpoint in folder: {}; use the folder of --checkpoint", path.string());
  }
  CheckpointToolResult result;
  for (const fs::path& checkpoint : checkpoints) {
    const auto begin = std::chrono::steady_clock::now();
    const auto damages = offload::verify_checkpoint(checkpoint, options.threads);
    if (checkpoints.size() > 1 && !fs::exists(checkpoint)) continue;  // removed by its job in the meantime
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const offload::CheckpointDamage& damage : damages)
      result.text += fmt::format("{}: {}\n", (checkpoint / damage.file).string(), with_flags(damage.what));
    result.text += damages.empty() ? fmt::format("{}: intact: {} in {:.1f} s\n", checkpoint.string(),
                                                 runtime::format_bytes(bytes_in(checkpoint)), seconds)
                                   : fmt::format("{}: damaged in {} place{}\n", checkpoint.string(), damages.size(),
                                                 damages.size() > 1 ? "s" : "");
    if (!damages.empty()) result.status = exit_code(ErrorCode::data);
  }
  return result;
}

CheckpointToolResult prune_checkpoints(const CheckpointToolOptions& options) {
  const fs::path path = options.paths[0];
  check_folder(path);
  CheckpointFolder folder(path);
  std::string text;
  if (!options.dry_run)
    folder.lock(models::random_job());  // fails while a job writes to the folder, which prunes by itself
  if (!folder.lock_refused().empty())
    fail(ErrorCode::io,
         "{}; prune on a machine whose file system supports locks, or remove folders by hand while no job runs",
         folder.lock_refused());
  const std::vector<CheckpointEntry> prunable = folder.prunable(options.keep, options.archive_every);
  for (const CheckpointEntry& entry : prunable)
    text += fmt::format("{} {} ({})\n", options.dry_run ? "would remove" : "removed", entry.path.string(),
                        runtime::format_bytes(bytes_in(entry.path)));
  if (!options.dry_run) folder.prune(options.keep, options.archive_every);
  if (prunable.empty()) text += fmt::format("{}: nothing to remove\n", path.string());
  return {text};
}

}  // namespace ranvier::apps
