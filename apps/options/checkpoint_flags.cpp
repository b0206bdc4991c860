#include "apps/options/flag_groups.hpp"
#include "runtime/base/names.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace ranvier::apps {
namespace {

using std::chrono::seconds;

constexpr seconds default_period = std::chrono::minutes(30);
constexpr seconds longest_default_stop = std::chrono::minutes(5);

/// Reads "500" as steps and "30m" as a time.
OptionBinding steps_or_time(CheckpointOptions& options) {
  const OptionBinding steps = whole(options.every_steps, 1), time = duration(options.every_time);
  return parsed(
      "a number of steps, such as 500, or a time, such as 30m",
      [=, &options](const std::string& given) {
        options.every_steps = 0;
        options.every_time.reset();
        return !steps.read(given) || !time.read(given);
      },
      [=, &options] { return options.every_steps > 0 ? steps.write() : time.write(); });
}

/// Reads names separated by commas, with or without leading dashes.
OptionBinding flag_list(std::vector<std::string>& flags) {
  return list<std::string>(flags, "flags separated by commas, such as learning-rate,steps",
                           [](std::string flag) -> std::optional<std::string> {
                             flag.erase(0, std::min(flag.size(), flag.find_first_not_of('-')));
                             return flag.empty() ? std::nullopt : std::optional(flag);
                           });
}

void check_resume(const CheckpointOptions& options) {
  if (options.folder.empty() && options.resume == "auto")
    reject("--resume auto needs a checkpoint folder; add --checkpoint DIR or use --resume PATH");
  if (options.resume_with.empty()) return;
  std::vector<std::string> names;
  for (const ResolvedOption& option : default_flags()) names.push_back(option.name);
  for (const std::string& flag : options.resume_with) {
    if (std::ranges::find(names, flag) != names.end()) continue;
    const auto nearest = runtime::nearest_name(flag, names);
    reject("--resume-with {}: flag --{} does not exist; {}", fmt::join(options.resume_with, ","), flag,
           nearest ? fmt::format("did you mean {}?", *nearest) : "see --help all");
  }
}

}  // namespace

void declare_checkpoints(TrainTable& table, CheckpointOptions& options) {
  const NoEffect no_checkpoints = unused_if([&options] { return options.folder.empty(); }, "without --checkpoint");
  table.concern("Stopping and resuming");
  table.add(
      {Effect::run, "checkpoint", "DIR", "Directory for checkpoints, shared by all ranks", text(options.folder)},
      {.usual = true, .plan = PlanRole::output});
  table.add({Effect::run, "checkpoint-every", "STEPS|TIME",
             "Interval between checkpoints, as in 500 (steps) or 30m; the run also ends with a checkpoint",
             steps_or_time(options), "30m"},
            {.also = "save-interval save-steps", .unused = no_checkpoints});
  table.add({Effect::run, "checkpoint-keep", "N", "Number of newest checkpoints to keep", whole(options.keep, 1)},
            {.also = "save-total-limit", .unused = no_checkpoints});
  table.add({Effect::run, "checkpoint-archive-every", "STEPS",
             "Never prune checkpoints whose step is a multiple of N; a run that resumes from an earlier step "
             "replaces them; 0 archives none",
             whole(options.archive_every, 0)},
            {.unused = no_checkpoints});
  table.add({Effect::run, "checkpoint-rate", "SIZE",
             "Largest rate of checkpoint writes per rank in bytes per second, as in 200MiB; the optimizer waits "
             "for states that are not yet copied",
             bytes(options.bytes_per_second), "unlimited"},
            {.unused = no_checkpoints});
  table.add({Effect::run, "resume", "auto|none|PATH",
             "auto: resume from the newest complete checkpoint in --checkpoint, or start from scratch if none "
             "exists; PATH: resume from this checkpoint; none: start from scratch",
             text(options.resume)},
            {.also = "load load-checkpoint resume-from-checkpoint", .usual = true});
  table.add({Effect::run, "resume-with", "FLAG,FLAG", "Flags that may differ from the checkpoint's values",
             flag_list(options.resume_with)},
            {.unused = unused_if([&options] { return !options.resumes(); }, "without --resume")});
  table.add({Effect::run, "time-limit", "TIME",
             "Time at which the scheduler ends the job, counted from the start of the program, as in 4h",
             duration(options.time_limit)},
            {.also = "exit-duration-in-mins", .usual = true});
  table.add({Effect::run, "stop-before", "TIME",
             "Write a checkpoint (with --checkpoint) and stop this long before --time-limit",
             duration(options.stop_before), "a tenth of --time-limit, at most 5m"},
            {.unused = unused_if([&options] { return !options.time_limit; }, "without --time-limit")});
}

void resolve_checkpoints(CheckpointOptions& options) {
  check_resume(options);
  if (!options.folder.empty() && options.every_steps == 0 && !options.every_time)
    options.every_time = default_period;
  if (!options.time_limit) return;
  if (!options.stop_before)
    options.stop_before = std::clamp(*options.time_limit / 10, seconds(1), longest_default_stop);
  if (*options.stop_before >= *options.time_limit)
    reject("--stop-before {} is not shorter than --time-limit {}; use a smaller value",
           duration_text(*options.stop_before), duration_text(*options.time_limit));
}

}  // namespace ranvier::apps
