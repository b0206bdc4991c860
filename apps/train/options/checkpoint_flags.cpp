#include "apps/train/options/checkpoint_flags.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace ranvier::apps {
namespace {

using runtime::OptionBinding;
using runtime::OptionTable;
using runtime::text;
using runtime::whole;
using std::chrono::seconds;

constexpr seconds default_period = std::chrono::minutes(30);
constexpr seconds longest_default_stop = std::chrono::minutes(5);

/// "500" is steps, "30m" is time.
OptionBinding steps_or_time(CheckpointOptions& options) {
  return {.read = [&options](const std::string& given) -> std::optional<std::string> {
            std::int64_t steps = 0;
            std::optional<seconds> time;
            if (whole(steps, 1).read(given) && runtime::duration(time).read(given))
              return "a number of steps, such as 500, or a time, such as 30m";
            options.every_steps = time ? 0 : steps;
            options.every_time = time;
            return {};
          },
          .write =
              [&options] {
                if (options.every_steps > 0) return fmt::format("{}", options.every_steps);
                return options.every_time ? runtime::duration_text(*options.every_time) : std::string();
              }};
}

/// As people write them: with dashes or without.
OptionBinding flag_list(std::vector<std::string>& flags) {
  return {.read = [&flags](const std::string& given) -> std::optional<std::string> {
            flags.clear();
            for (std::size_t begin = 0; begin <= given.size();) {
              const std::size_t end = std::min(given.find(',', begin), given.size());
              std::string flag = given.substr(begin, end - begin);
              flag.erase(0, std::min(flag.size(), flag.find_first_not_of('-')));
              if (flag.empty()) return "flags with commas between them, such as learning-rate,steps";
              flags.push_back(std::move(flag));
              begin = end + 1;
            }
            return {};
          },
          .write = [&flags] { return fmt::format("{}", fmt::join(flags, ",")); }};
}

void check_resume(const CheckpointOptions& options, const OptionTable& table) {
  if (options.folder.empty() && options.resume == "auto")
    fail(ErrorCode::usage,
         "--resume auto looks for checkpoints in the folder of --checkpoint, and there is none: give --checkpoint "
         "DIR, or --resume PATH");
  std::vector<std::string> names;
  for (const runtime::ResolvedOption& option : table.resolved()) names.push_back(option.name);
  for (const std::string& flag : options.resume_with) {
    if (std::find(names.begin(), names.end(), flag) != names.end()) continue;
    const auto nearest = runtime::nearest_name(flag, names);
    fail(ErrorCode::usage, "--resume-with {}: there is no flag --{}: {}", fmt::join(options.resume_with, ","), flag,
         nearest ? fmt::format("did you mean {}?", *nearest) : "--help lists those that there are");
  }
}

}  // namespace

void declare_checkpoints(OptionTable& table, CheckpointOptions& options) {
  table.concern("Stopping and resuming");
  table.add({"checkpoint", "DIR",
             "where to keep checkpoints, which another run goes on from; a folder that all ranks share",
             text(options.folder)});
  table.add({"checkpoint-every", "STEPS|TIME", "how often, as in 500 or 30m, and at the end of the run",
             steps_or_time(options), "30m"});
  table.add({"checkpoint-keep", "N", "the newest ones that stay", whole(options.keep, 1)});
  table.add(
      {"checkpoint-archive-every", "STEPS",
       "those of a multiple of so many steps stay for ever, unless a run goes on from one before them; 0: none do",
       whole(options.archive_every, 0)});
  table.add(
      {"checkpoint-rate", "SIZE",
       "bytes that a rank writes a second at most while it trains, as in 200MiB; steps that would change what is "
       "not copied by then wait",
       runtime::bytes(options.bytes_per_second), "any"});
  table.add(
      {"resume", "auto|none|PATH",
       "go on from a checkpoint: auto takes the newest whole one in --checkpoint, and begins anew where there is "
       "none; or that at PATH",
       text(options.resume)});
  table.add({"resume-with", "FLAG,FLAG",
             "flags whose values are other ones on purpose than those of the checkpoint",
             flag_list(options.resume_with)});
  table.add({"time-limit", "TIME",
             "when somebody else ends the job, as in 4h, counted from the start of the program",
             runtime::duration(options.time_limit)});
  table.add({"stop-before", "TIME", "how long before that the run stops by itself, to be gone on with",
             runtime::duration(options.stop_before), "a tenth of --time-limit, at most 5m"});
}

void resolve_checkpoints(CheckpointOptions& options, const OptionTable& table) {
  check_resume(options, table);
  if (!options.folder.empty() && options.every_steps == 0 && !options.every_time)
    options.every_time = default_period;
  if (!options.time_limit) return;
  if (!options.stop_before)
    options.stop_before = std::clamp(*options.time_limit / 10, seconds(1), longest_default_stop);
  if (*options.stop_before >= *options.time_limit)
    fail(ErrorCode::usage, "--stop-before {} leaves nothing of --time-limit {}: give a shorter time",
         runtime::duration_text(*options.stop_before), runtime::duration_text(*options.time_limit));
}

}  // namespace ranvier::apps
