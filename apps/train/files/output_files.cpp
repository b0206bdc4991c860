#include "apps/train/files/output_files.hpp"

#include "models/text/mixed_source.hpp"
#include "runtime/arena.hpp"
#include "runtime/atomic_file.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;

/// A file, and how messages call it.
struct Named {
  std::string flag;
  fs::path path;
};

/// Without links, dots and doubled slashes, as far as the path is there.
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
    if (const auto config = config_path(run.save)) outputs.push_back({"--save " + run.save, *config});
  }
  if (!run.metrics.empty()) outputs.push_back({"--metrics " + run.metrics, run.metrics});
  if (!run.trace.empty()) outputs.push_back({"--trace " + run.trace, run.trace});
  return outputs;
}

/// Files of a tokenizer, of which its folder has some.
constexpr const char* tokenizer_files[] = {"encoder.json", "vocab.bpe", "vocab.json", "merges.txt",
                                           "tokenizer.json"};

std::vector<Named> inputs_of(const TrainOptions& options) {
  std::vector<Named> inputs;
  std::error_code unknown;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data)) {
    for (const char* extension : {"", ".bin", ".idx"}) {  // Megatron's two files go by either name
      fs::path path(data.path);
      if (*extension != '\0') path.replace_extension(extension);
      inputs.push_back({"--data " + data.path, path});
    }
  }
  if (const std::string& tokenizer = options.data.gpt2; !tokenizer.empty()) {
    if (!fs::is_directory(tokenizer, unknown)) inputs.push_back({"--tokenizer gpt2:" + tokenizer, tokenizer});
    for (const char* file : tokenizer_files)
      inputs.push_back({"--tokenizer gpt2:" + tokenizer, fs::path(tokenizer) / file});
  }
  for (const auto& [flag, path] : {std::pair{"--hellaswag", &options.data.hellaswag},
                                   {"--links", &options.shard.links},
                                   {"--config", &options.run.config},
                                   {"--products-file", &options.device.products_file}}) {
    if (!path->empty()) inputs.push_back({fmt::format("{} {}", flag, *path), *path});
  }
  return inputs;
}

/// What --init-from reads: a file, or what belongs to a model in its folder.
bool reads_weights(const std::string& init_from, const fs::path& output) {
  std::error_code unknown;
  if (init_from.empty()) return false;
  if (!fs::is_directory(init_from, unknown)) return same_file(init_from, output);
  const fs::path name = place_of(output).filename();
  const bool of_tokenizer = std::any_of(std::begin(tokenizer_files), std::end(tokenizer_files),
                                        [&](const char* file) { return name == file; });
  const bool belongs = of_tokenizer || name.extension() == ".safetensors" || name == "config.json" ||
                       name == "model.safetensors.index.json";
  return belongs && fs::exists(output, unknown) && lies_in(output, init_from);
}

void check_against_inputs(const TrainOptions& options, const Named& output) {
  for (const Named& input : inputs_of(options)) {
    if (same_file(output.path, input.path))
      fail(ErrorCode::usage, "{} would write over {} ({}), which this run reads: give another path", output.flag,
           input.flag, place_of(input.path).string());
  }
  const std::string& init_from = options.run.init_from;
  const bool saves = output.flag.starts_with("--save");
  if (reads_weights(init_from, output.path) && !(saves && options.run.overwrite))
    fail(ErrorCode::usage, "{} would write over {}, which --init-from {} reads: give another path{}", output.flag,
         place_of(output.path).string(), init_from,
         saves ? ", or --overwrite to replace the weights that the run begins with" : "");
  std::error_code unknown;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data)) {
    const bool read = !models::has_tokens(options.data.format) || output.path.extension() == ".bin";
    if (read && fs::is_directory(data.path, unknown) && lies_in(output.path, data.path))
      fail(ErrorCode::usage, "{} would lie in --data {}, and the next run would train on it: give a path elsewhere",
           output.flag, data.path);
  }
}

void check_save(const std::string& save) {
  if (save.empty()) return;
  const fs::path place = place_of(save), file = weights_path(save);
  if (place == place.root_path())
    fail(ErrorCode::usage, "--save {} is the root of the file system: give a folder of the model's own", save);
  std::error_code unknown;
  if (file != fs::path(save) && fs::exists(save, unknown) && !fs::is_directory(save, unknown))
    fail(ErrorCode::usage,
         "--save {} is no folder, and a path without an extension means one: give a folder, or a file such as "
         "{}.safetensors",
         save, save);
}

/// What tells a later run's steps from those before them.
std::string run_line(const TrainOptions& options) {
  std::string line = fmt::format(R"({{"run":{{"began":"{:%Y-%m-%dT%H:%M:%SZ}","steps":{},"seed":{})",
                                 fmt::gmtime(std::time(nullptr)), options.trainer.steps, options.trainer.seed);
  if (!options.run.init_from.empty())
    line += ",\"init_from\":" + boost::json::serialize(boost::json::string_view(options.run.init_from));
  return line + "}}\n";
}

}  // namespace

fs::path weights_path(const std::string& save) {
  const fs::path path(save);
  return path.has_extension() && !fs::is_directory(path) ? path : path / "model.safetensors";
}

std::optional<fs::path> config_path(const std::string& save) {
  const fs::path weights = weights_path(save);
  if (weights.filename() != "model.safetensors") return std::nullopt;
  return weights.parent_path() / "config.json";
}

void check_outputs(const TrainOptions& options) {
  check_save(options.run.save);
  const std::vector<Named> outputs = outputs_of(options.run);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Named& output = outputs[i];
    if (runtime::is_device(output.path)) continue;
    for (std::size_t j = 0; j < i; ++j) {
      const Named& other = outputs[j];
      if (output.flag == other.flag) continue;
      if (same_file(output.path, other.path))
        fail(ErrorCode::usage, "{} and {} would both write {}: give each a path of its own", other.flag,
             output.flag, place_of(output.path).string());
      if (lies_in(other.path, output.path) || lies_in(output.path, other.path))
        fail(ErrorCode::usage, "{} and {} need one path as a file and as a folder: give each a path of its own",
             other.flag, output.flag);
    }
    check_against_inputs(options, output);
  }
}

void prepare_outputs(const TrainOptions& options) {
  const RunOptions& run = options.run;
  for (const Named& output : outputs_of(run)) runtime::remove_leftovers(output.path);
  if (!run.save.empty()) {
    const fs::path folder = weights_path(run.save).parent_path();
    std::error_code failed;
    if (!folder.empty()) fs::create_directories(folder, failed);
    if (failed) fail(ErrorCode::io, "--save {}: its folder cannot be made: {}", run.save, failed.message());
    runtime::check_writable(weights_path(run.save), "--save");
    if (const auto config = config_path(run.save)) runtime::check_writable(*config, "--save");
  }
  if (!run.metrics.empty()) runtime::check_writable(run.metrics, "--metrics");
  if (!run.trace.empty()) runtime::check_writable(run.trace, "--trace");
}

void check_space(const std::string& save, std::size_t bytes) {
  const fs::path path = weights_path(save);
  if (runtime::is_device(path)) return;
  const std::size_t free = runtime::free_bytes_beside(path);
  if (bytes <= free) return;
  std::error_code unknown;
  const std::string beside = fs::exists(path, unknown) ? ", beside the ones that they replace," : "";
  fail(ErrorCode::io,
       "--save {}: the weights take {} at the end{} and {} are free in {}: make room for {} more, or save on "
       "another disk",
       save, runtime::format_bytes(bytes), beside, runtime::format_bytes(free),
       place_of(path).parent_path().string(), runtime::format_bytes(bytes - free));
}

std::unique_ptr<runtime::LogFile> open_metrics(const TrainOptions& options) {
  const std::string& path = options.run.metrics;
  if (path.empty()) return nullptr;
  std::error_code unknown;
  const bool there = fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) > 0;
  const bool goes_on = there && !options.run.overwrite;
  if (goes_on && std::ifstream(path).get() != '{')
    fail(ErrorCode::usage, "--metrics {}: it is there and has no metrics: give another path, or --overwrite", path);
  using Start = runtime::LogFile::Start;
  auto log = std::make_unique<runtime::LogFile>("--metrics " + path, path, goes_on ? Start::after : Start::anew);
  if (goes_on) log->write(run_line(options));
  return log;
}

}  // namespace ranvier::apps
