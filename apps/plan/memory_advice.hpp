// Advice for a job that does not fit, from the planner's search at the job's grid. Callable from any thread.
#pragma once

#include "apps/memory/fit.hpp"
#include "apps/plan/planned_candidate.hpp"

#include <string>

namespace ranvier::apps {

/// The fewest changed flags with which a job of these ranks fits, each line planned; if there are none, the closest
/// candidate and the memory that it lacks. Changes sharding, offload, microbatch size and recomputation, also if they
/// are given, but not the group size. Only names flags that usually help if the model is too large for many plans or
/// the flags cannot be searched. `options`: resolved. `build`: as for Planner. Without a newline at the end.
[[nodiscard]] std::string memory_advice(const TrainOptions& options, const CurrentRanks& ranks,
                                        const JobCapacity& capacity, const JobBuilder& build);

}  // namespace ranvier::apps
