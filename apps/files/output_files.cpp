#include "apps/files/output_files.hpp"

#include "models/families/adapter_files.hpp"
#include "models/text/mixed_source.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/partial_weights.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/base/console.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/trace/trace.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;

/// A file and its flag for messages.
struct Named {
  std::string flag;
  fs::path path;
};

/// Path without links, dots and double slashes, as far as it exists.
fs::path place_of(const fs::path& path) {
  std::error_code unknown;
  fs::path place = fs::weakly_canonical(fs::absolute(path, unknown), unknown);
  return unknown ? path : place;
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code unknown;
  return place_of(a) == place_of(b) || fs::equivalent(a, b, unknown);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path inner = place_of(path), outer = place_of(folder);
  const auto [end, rest] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end() && rest != inner.end();
}

std::vector<Named> outputs_of(const RunOptions& run) {
  std::vector<Named> outputs;
  if (!run.save.empty()) {
    outputs.push_back({"--save " + run.save, weights_path(run.save)});
    if (const auto config = config_path(run.save)) {
      outputs.push_back({"--save " + run.save, *config});
      outputs.push_back({"--save " + run.save, config->parent_path() / models::WeightLayout::index_name});
    }
  }
  if (!run.metrics.empty()) outputs.push_back({"--metrics " + run.metrics, run.metrics});
  if (!run.trace.empty()) outputs.push_back({"--trace " + run.trace, run.trace});
  return outputs;
}

std::vector<Named> inputs_of(const TrainOptions& options) {
  std::vector<Named> inputs;
  std::error_code unknown;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data)) {
    for (const char* extension : {"", ".bin", ".idx"}) {  // Megatron's two files can be given by either name
      fs::path path(data.path);
      if (*extension != '\0') path.replace_extension(extension);
      inputs.push_back({"--data " + data.path, path});
    }
  }
  if (const std::string& tokenizer = options.data.gpt2; !tokenizer.empty()) {
    if (!fs::is_directory(tokenizer, unknown)) inputs.push_back({"--tokenizer " + tokenizer, tokenizer});
    for (const auto& [name, file] : models::tokenizer_files(tokenizer))
      inputs.push_back({"--tokenizer " + tokenizer, file});
  }
  if (const fs::path adapter = options.run.init_adapter; !adapter.empty()) {
    for (const char* name : {models::adapter_config_name, models::adapter_weights_name})
      inputs.push_back({"--init-adapter " + options.run.init_adapter, adapter / name});
  }
  for (const auto& [flag, path] : {std::pair{"--hellaswag", &options.data.hellaswag},
                                   {"--links", &options.shard.links},
                                   {"--config", &options.run.config},
                                   {"--products-file", &options.device.products_file}}) {
    if (!path->empty()) inputs.push_back({fmt::format("{} {}", flag, *path), *path});
  }
  return inputs;
}

/// Whether --init-from reads this file, as the weights or as part of the model in a folder.
bool reads_weights(const std::string& init_from, const fs::path& output) {
  std::error_code unknown;
  if (init_from.empty()) return false;
  if (!fs::is_directory(init_from, unknown)) return same_file(init_from, output);
  const fs::path name = place_of(output).filename();
  const bool belongs = models::is_tokenizer_file(name) || name.extension() == ".safetensors" ||
                       name == "config.json" || name == "model.safetensors.index.json";
  return belongs && fs::exists(output, unknown) && lies_in(output, init_from);
}

void check_outside_data(const TrainOptions& options, const Named& output) {
  std::error_code unknown;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data)) {
    if (fs::is_directory(data.path, unknown) &&
        (same_file(output.path, data.path) || lies_in(output.path, data.path)))
      reject("{} is inside --data {}, so the next run would train on it; use another path", output.flag, data.path);
  }
}

void check_against_inputs(const TrainOptions& options, const Named& output) {
  for (const Named& input : inputs_of(options)) {
    if (same_file(output.path, input.path))
      reject("{} would overwrite an input, {} ({}); use another path", output.flag, input.flag,
             place_of(input.path).string());
  }
  const std::string& init_from = options.run.init_from;
  const bool saves = output.flag.starts_with("--save");
  if (reads_weights(init_from, output.path) && !(saves && options.run.overwrite))
    reject("{} would overwrite {}, which --init-from {} reads; use another path{}", output.flag,
           place_of(output.path).string(), init_from,
           saves ? ", or add --overwrite to replace the initial weights" : "");
  if (!models::has_tokens(options.data.reading.format) || output.path.extension() == ".bin")
    check_outside_data(options, output);
}

/// Checks a flag whose output is a folder.
void check_folder(const TrainOptions& options, const char* flag, const std::string& folder) {
  if (folder.empty()) return;
  const Named named{fmt::format("{} {}", flag, folder), folder};
  check_outside_data(options, named);
  for (const Named& output : outputs_of(options.run)) {
    if (same_file(output.path, folder))
      reject("{} and {} use one path as file and as folder; use different paths", output.flag, named.flag);
  }
}

void check_save(const TrainOptions& options) {
  const RunOptions& run = options.run;
  const std::string& save = run.save;
  const bool in_folder = !save.empty() && (config_path(save) || options.model.adapts());  // adapters always are
  if (run.save_every > 0 && !in_folder) reject("--save-every {} needs a folder; use --save FOLDER", run.save_every);
  if (save.empty()) return;
  const fs::path place = place_of(save), file = weights_path(save);
  if (place == place.root_path())
    reject("--save {} is the root of the file system; use a folder for this model", save);
  if (runtime::is_device(file)) reject("--save is a device or pipe: {}; use a folder or a regular file", save);
  std::error_code unknown;
  if (file != fs::path(save) && fs::exists(save, unknown) && !fs::is_directory(save, unknown))
    reject("--save {} is a file without a weights extension; use a folder, or a file such as {}.safetensors", save,
           save);
}

}  // namespace

fs::path weights_path(const std::string& save) {
  const fs::path path(save);
  return models::has_weights_extension(path) && !fs::is_directory(path) ? path : path / "model.safetensors";
}

std::optional<fs::path> config_path(const std::string& save) {
  const fs::path weights = weights_path(save);
  if (weights.filename() != "model.safetensors") return std::nullopt;
  return weights.parent_path() / "config.json";
}

void check_outputs(const TrainOptions& options) {
  check_save(options);
  check_folder(options, "--checkpoint", options.checkpoint.folder);
  check_folder(options, "--tensorboard", options.run.tensorboard);
  const std::vector<Named> outputs = outputs_of(options.run);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Named& output = outputs[i];
    if (runtime::is_device(output.path)) continue;
    for (std::size_t j = 0; j < i; ++j) {
      const Named& other = outputs[j];
      if (output.flag == other.flag) continue;
      if (same_file(output.path, other.path))
        reject("{} and {} would both write {}; use different paths", other.flag, output.flag,
               place_of(output.path).string());
      if (lies_in(other.path, output.path) || lies_in(output.path, other.path))
        reject("{} and {} use one path as file and as folder; use different paths", other.flag, output.flag);
    }
    check_against_inputs(options, output);
  }
}

void check_replaced(const TrainOptions& options) {
  const RunOptions& run = options.run;
  if (run.overwrite) return;
  const auto refuse = [](const std::string& flag, const fs::path& there) {
    reject("{} would replace the output of another run: {}; add --overwrite or use another path", flag,
           place_of(there).string());
  };
  std::error_code unknown;
  for (const Named& output : outputs_of(run)) {
    if (!output.flag.starts_with("--metrics") && fs::is_regular_file(output.path, unknown) &&
        fs::file_size(output.path, unknown) > 0)
      refuse(output.flag, output.path);
  }
  // With --resume auto, an earlier attempt may have saved weights before its first checkpoint.
  if (run.save_every == 0 || options.checkpoint.resume == "auto") return;
  const fs::path folder = weights_path(run.save).parent_path();
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end; entry.increment(unknown)) {
    if (entry->path().filename().string().starts_with("weights-"))
      refuse(fmt::format("--save-every {}", run.save_every), entry->path());
  }
}

void prepare_outputs(const TrainOptions& options) {
  const RunOptions& run = options.run;
  for (const Named& output : outputs_of(run)) runtime::remove_leftovers(output.path);
  if (!run.save.empty()) {
    const fs::path folder = weights_path(run.save).parent_path();
    std::error_code failed;
    if (!folder.empty()) fs::create_directories(folder, failed);
    models::PartialWeights::remove_leftovers(folder.empty() ? "." : folder);
    if (failed) fail(ErrorCode::io, "--save {}: cannot create its folder: {}", run.save, failed.message());
    runtime::check_writable(weights_path(run.save), "--save");
    if (const auto config = config_path(run.save)) runtime::check_writable(*config, "--save");
  }
  if (!run.metrics.empty()) runtime::check_writable(run.metrics, "--metrics");
  if (!run.trace.empty()) runtime::check_writable(run.trace, "--trace");
}

void check_space(const std::string& save, std::size_t bytes) {
  const fs::path path = weights_path(save);
  const std::size_t free = runtime::free_bytes_beside(path);
  if (bytes <= free) return;
  std::error_code unknown;
  const std::string beside = fs::exists(path, unknown) ? ", next to the weights that they replace" : "";
  fail(ErrorCode::io,
       "--save {0} needs {1} at the end{2}, but {4} has only {3} available; free {5} or use another disk", save,
       runtime::format_bytes(bytes), beside, runtime::format_bytes(free), place_of(path).parent_path().string(),
       runtime::format_bytes(bytes - free));
}

bool DiskRetry::operator()(const std::filesystem::path& path, int error) {
  using namespace std::chrono_literals;
  constexpr auto pause = 200ms;
  const auto now = std::chrono::steady_clock::now();
  if (now - refused_ > 5 * pause) waiting_since_.reset();  // a write succeeded meanwhile
  refused_ = now;
  std::error_code failed;
  if (!path.parent_path().empty()) std::filesystem::create_directories(path.parent_path(), failed);
  if (!waiting_since_) {
    waiting_since_ = now;
    runtime::print_stderr(
        fmt::format("ranvier: warning: cannot write {}: {}; {} {}, {} are free; {} within {:g} s (--timeout), or "
                    "the file is not saved\n",
                    path.string(), std::strerror(error), what_, runtime::format_bytes(bytes_),
                    runtime::format_bytes(runtime::free_bytes_beside(path)),
                    error == ENOSPC || error == EDQUOT ? "free space" : "fix the cause",
                    std::chrono::duration<double>(patience_).count()));
  }
  if (now - *waiting_since_ >= patience_) return false;
  std::this_thread::sleep_for(std::min<runtime::Duration>(pause, patience_));
  refused_ = std::chrono::steady_clock::now();
  return true;
}

std::string trace_path(const std::string& path, std::int64_t step) {
  std::error_code unknown;
  if (step == 0 || !fs::is_regular_file(path, unknown)) return path;
  fs::path beside(path);
  const std::string extension = beside.extension().string();
  return beside.replace_extension(fmt::format(".from-{}{}", step, extension)).string();
}

void write_trace(const std::string& path, std::span<const std::string> events, runtime::Duration patience) {
  std::size_t bytes = 0;
  for (const std::string& rank : events) bytes += rank.size();
  runtime::write_trace_file(path, events, DiskRetry(patience, "the trace takes", bytes));
}

}  // namespace ranvier::apps
