#include "apps/files/metrics_file.hpp"

#include "apps/view/history.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/atomic_file.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <fmt/chrono.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

namespace ranvier::apps {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// Line that separates a run's steps from those before.
std::string run_line(const TrainOptions& options, const RunOrigin& place) {
  const auto text = [](const std::string& value) { return json::serialize(json::string_view(value)); };
  std::string line = fmt::format(R"({{"run":{{"began":"{:%Y-%m-%dT%H:%M:%SZ}","steps":{},"seed":{})",
                                 fmt::gmtime(std::time(nullptr)), options.trainer.steps, options.trainer.seed);
  if (!options.run.init_from.empty()) line += ",\"init_from\":" + text(options.run.init_from);
  if (!place.training.empty()) line += ",\"training\":" + text(place.training);
  if (!place.checkpoint.empty())
    line += fmt::format(",\"resumed_step\":{},\"checkpoint\":{}", place.step, text(place.checkpoint));
  return line + "}}\n";
}

/// Decides for each line, in order, whether it stays.
class Filter {
 public:
  Filter(const std::string& training, std::int64_t step) : training_(training), step_(step) {}

  [[nodiscard]] bool keeps(const std::string& line) {
    const auto object = parse_record(line);
    if (!object) return !ours_;
    if (const json::object* run = object_of(*object, "run")) {
      ours_ = run->contains("training") && text_of(*run, "training") == training_;
      return !ours_ || whole_of(*run, "resumed_step").value_or(0) <= step_;
    }
    const auto step = whole_of(*object, "step"), checkpoint = whole_of(*object, "checkpoint");
    // A rollback is recorded once; a skipped step is skipped again when the run resumes.
    const auto skipped = text_of(*object, "action") == "skip" ? whole_of(*object, "bad_step") : std::nullopt;
    return !ours_ || step.value_or(checkpoint.value_or(skipped.value_or(0))) <= step_;
  }

 private:
  const std::string& training_;
  std::int64_t step_;
  bool ours_ = false;
};

std::size_t for_each_line(const std::string& path, const std::function<void(const std::string&)>& what) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::size_t lines = 0;
  for (; std::getline(file, line); ++lines) what(line);
  if (file.bad() || !file.eof()) fail(ErrorCode::io, "--metrics {}: cannot read: {}", path, std::strerror(errno));
  return lines;
}

}  // namespace

std::size_t drop_later_metrics(const std::string& path, const std::string& training, std::int64_t step) {
  std::size_t dropped = 0;
  Filter first(training, step);
  for_each_line(path, [&](const std::string& line) { dropped += first.keeps(line) ? 0 : 1; });
  if (dropped == 0) return 0;
  runtime::AtomicFile kept(path);
  Filter again(training, step);
  for_each_line(path, [&](const std::string& line) {
    if (!again.keeps(line)) return;
    kept.append(line.data(), line.size());
    kept.append("\n", 1);
  });
  kept.commit();
  return dropped;
}

std::unique_ptr<runtime::RecordFile> open_metrics(const TrainOptions& options, const RunOrigin& place) {
  const std::string& path = options.run.metrics;
  if (path.empty()) return nullptr;
  std::error_code unknown;
  const bool there = fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) > 0;
  const bool resumes = !place.checkpoint.empty();
  const bool goes_on = there && (resumes || !options.run.overwrite);
  if (goes_on && std::ifstream(path).get() != '{')
    reject("--metrics file exists but has no metrics: {}; use another path or add --overwrite", path);
  if (goes_on && !place.training.empty()) drop_later_metrics(path, place.training, place.step);
  using Start = runtime::RecordFile::Start;
  auto file = std::make_unique<runtime::RecordFile>("--metrics " + path, path,
                                                    goes_on ? Start::after_existing : Start::from_scratch);
  if (goes_on || !place.training.empty()) file->append(run_line(options, place));
  return file;
}

}  // namespace ranvier::apps
