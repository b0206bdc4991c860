// What a run tells people beside its steps: where its files are before it, what it did after it. Loop thread only,
// while the loop does not run.
#pragma once

#include "apps/train/nccl_session.hpp"
#include "apps/train/prediction_check.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/training.hpp"

namespace ranvier::apps {

/// All ranks call it: where states live in files, and what dead jobs had left there.
void say_files(const RankRun& run, const actors::Rank& rank);

/// On rank 0, after the training: its tables and its sums, where its outputs are, and warnings on stderr for those
/// that were lost. `profile`: what the run is compared with.
void print_summary(const RankRun& run, const actors::TrainerOptions& options, Training& training,
                   const NcclSession& nccl, const ProfileOfRun& profile);

/// On rank 0, after a run that is gone on with as well: where --trace is, or why it is not.
void say_trace(const Training& training);

}  // namespace ranvier::apps
