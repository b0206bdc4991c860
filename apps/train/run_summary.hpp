// Console output of a run before and after its steps: file locations, final summary. Loop thread only, while the loop
// does not run.
#pragma once

#include "apps/job/rank_run.hpp"
#include "apps/train/nccl_session.hpp"
#include "apps/train/prediction_check.hpp"
#include "apps/train/training.hpp"

namespace ranvier::apps {

/// Called by all ranks. Prints on rank 0 where states are stored in files, and the leftovers that were deleted there.
void print_files(const RankRun& run, const actors::Rank& rank);

/// Prints the final summary: bottleneck, tables, totals, prediction and output paths. Rank 0, after execute().
/// `profile`: basis of the prediction.
void print_summary(const RankRun& run, const actors::TrainerOptions& options, Training& training,
                   const NcclSession& nccl, const ProfileOfRun& profile);

/// Prints the path of the trace, if one was written. Rank 0, also before the process resumes from a checkpoint.
void print_trace(const Training& training);

}  // namespace ranvier::apps
