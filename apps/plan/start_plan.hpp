// --plan auto of ranvier-train: chooses the flags that were not given, by predictions for the current ranks and their
// memory. Rank 0 chooses before the first step and broadcasts the flags.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"
#include "apps/plan/plan_run.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Resources of a job's ranks: minima over the machines.
struct CurrentMachines {
  std::vector<int> nodes;                   ///< node of every rank
  int threads = 1;                          ///< threads per rank, as in CurrentRanks
  std::optional<std::size_t> device_bytes;  ///< device memory that a rank may plan; none: the profile's
  std::size_t host_bytes = 0;               ///< host memory per node
  std::size_t disk_bytes = 0;               ///< free bytes per node in the directories of --nvme
};

/// New value of a flag; none: the flag is removed.
struct FlagChange {
  std::string name;
  std::optional<std::string> value;

  friend bool operator==(const FlagChange&, const FlagChange&) = default;
};

struct StartPlan {
  std::vector<FlagChange> changes;
  std::string text;  ///< printed lines: the candidate, its prediction, equivalent flags
};

/// Plans the flags that were not given. With --world, the profile supplies the machines. Throws ErrorCode::usage if
/// flags, profile and job contradict each other, and ErrorCode::memory if nothing fits.
[[nodiscard]] StartPlan plan_start(const std::vector<GivenFlag>& given, const CurrentMachines& here,
                                   const PlanTools& tools, const JobBuilder& build);

/// Arguments of a run with these flags, starting with the program name.
[[nodiscard]] std::vector<std::string> changed_arguments(const std::string& program,
                                                         const std::vector<GivenFlag>& given,
                                                         const std::vector<FlagChange>& changes);

/// Arguments of this rank's run.
struct PlannedArguments {
  std::vector<std::string> words;
  std::string config;  ///< config file whose keys `words` contains; empty: none, or `words` names it
};

/// Returns the arguments unchanged or, with --plan auto, those that rank 0 chose and printed. `given`: flags of the
/// arguments and their config file; `defaults`: values of others. Collective; throws FailedTogether on all ranks.
[[nodiscard]] PlannedArguments planned_arguments(runtime::MpiSession& session, int argc, const char* const* argv,
                                                 const std::vector<GivenFlag>& given, const RunDefaults& defaults,
                                                 const JobBuilder& build);

}  // namespace ranvier::apps
