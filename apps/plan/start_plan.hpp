// --plan auto of ranvier-train: chooses values of flags that were not given, by predictions for the current ranks and
// their memory. Rank 0 chooses before the first step and broadcasts its flags to all ranks.
#pragma once

#include "apps/job/job.hpp"
#include "apps/memory/fit.hpp"
#include "apps/options/train_options.hpp"
#include "apps/plan/plan_run.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

struct StartPlan {
  Candidate candidate;
  std::vector<GivenFlag>
      flags;              ///< flags with other values than given or by default; empty value: without the flag
  std::string text = {};  ///< printed lines: the candidate, its prediction, equivalent flags
};

/// Plans the flags that were not given. With --world, the profile supplies the machines. Throws ErrorCode::usage if
/// flags, profile and job contradict each other, and ErrorCode::memory if nothing fits.
[[nodiscard]] StartPlan plan_start(const std::vector<GivenFlag>& given, const CurrentRanks& here,
                                   const JobCapacity& capacity, const PlanTools& tools, const JobBuilder& build);

/// Flags of the plan that rank 0 chose and printed; none without --plan auto. `given`: flags of this rank and its
/// config file; `defaults`: values of others. Collective; throws FailedTogether on all ranks.
[[nodiscard]] std::vector<GivenFlag> plan_start(runtime::MpiSession& session, const std::vector<GivenFlag>& given,
                                                const RunDefaults& defaults, const JobBuilder& build);

/// Replaces the profile's memory and disk by the available ones, which another job may share; 0: unknown.
void fit_to(runtime::MachineProfile& profile, const JobCapacity& capacity);

/// The fewest changed flags with which a job of these ranks fits, each line planned; if there are none, the closest
/// candidate and the memory that it lacks. Changes sharding, offload, microbatch size and recomputation, also if they
/// are given, but not the group size. If it offloads optimizer states or --optimizer-budget is given, the budget fills
/// the device. Only names flags that usually help if the model is too large for many plans or the flags cannot be
/// searched. `options`: resolved. `build`: as for Planner. Without a newline at the end.
[[nodiscard]] std::string memory_advice(const TrainOptions& options, const CurrentRanks& ranks,
                                        const JobCapacity& capacity, const JobBuilder& build);

}  // namespace ranvier::apps
