// --plan auto of ranvier-train: what was not given is chosen before the first step, for the ranks and the memory that
// are there, by predictions with the profile of these machines. Rank 0 chooses, and all ranks are told.
#pragma once

#include "apps/plan/plan_run.hpp"
#include "apps/train/job.hpp"
#include "apps/train/launch.hpp"
#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// What the ranks of a job have. Where machines differ, of the one with the least.
struct CurrentMachines {
  std::vector<int> nodes;                   ///< of every rank
  int threads = 1;                          ///< CurrentRanks's
  std::optional<std::size_t> device_bytes;  ///< that a rank may plan on its device; none: what the profile says
  std::size_t host_bytes = 0;               ///< of a node
  std::size_t disk_bytes = 0;               ///< of a node, in the directories of --nvme
};

/// A flag as it is given instead of what was; none: it is left out.
struct FlagChange {
  std::string name;
  std::optional<std::string> value;

  friend bool operator==(const FlagChange&, const FlagChange&) = default;
};

struct StartPlan {
  std::vector<FlagChange> changes;
  std::string text;  ///< what was chosen, how fast it may be, and the flags that repeat it: lines for people
};

/// What --plan auto makes of these flags. Ranks that --world imagines have what the profile says. Throws
/// ErrorCode::usage where flags, profile and job do not go together, and ErrorCode::memory where nothing fits.
[[nodiscard]] StartPlan plan_start(const std::vector<GivenFlag>& given, const CurrentMachines& here,
                                   const PlanTools& tools, const JobBuilder& build);

/// The arguments of a run with these flags, the program's name before them.
[[nodiscard]] std::vector<std::string> changed_arguments(const std::string& program,
                                                         const std::vector<GivenFlag>& given,
                                                         const std::vector<FlagChange>& changes);

/// What the run of this rank is asked for.
struct PlannedArguments {
  std::vector<std::string> words;
  std::string config;  ///< the file whose keys are among them; empty: none are, or the words name it
};

/// The arguments as they are, or with --plan auto as rank 0 chose and printed. `given`: the flags among them;
/// `defaults`: values of others. All ranks call it; throws FailedTogether on all of them.
[[nodiscard]] PlannedArguments planned_arguments(runtime::MpiSession& session, int argc, const char* const* argv,
                                                 const std::vector<GivenFlag>& given, const RunDefaults& defaults,
                                                 const JobBuilder& build);

}  // namespace ranvier::apps
