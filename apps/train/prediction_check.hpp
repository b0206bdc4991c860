// Prediction of a run's step from a machine profile, compared with the measured step in the final summary.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/job/rank_run.hpp"
#include "apps/program/profile_search_path.hpp"
#include "apps/train/totals.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Machine profile for the comparison at the end of a run.
struct ProfileOfRun {
  std::optional<runtime::MachineProfile> profile = {};
  /// Line with its location, or with the reason why a found profile is not used. Empty if --profile names it or there
  /// is none.
  std::string remark = {};
};

/// Reads the profile before training. Throws ErrorCode::usage if the one of --profile is missing or describes another
/// kind of device. One that was found elsewhere is then skipped with a remark.
[[nodiscard]] ProfileOfRun profile_of_run(const TrainOptions& options, const ProfileSearchPath& places,
                                          int threads);

struct PredictionCheck {
  std::string text;         ///< table, or one line with the reason why there is none
  std::string record = {};  ///< JSON object for --metrics; empty: none
};

/// Predicts and compares. `trainer`: the run's options, including a rank that RANVIER_FAULT slows down. Gives up after
/// a few seconds. Errors of predict() become the text: training is over.
[[nodiscard]] PredictionCheck check_prediction(const RankRun& run, const actors::TrainerOptions& trainer,
                                               const runtime::MachineProfile& profile,
                                               const std::vector<RankTotals>& ranks);

/// Compares a given prediction. Needs at least one measured step. Pure functions, callable from any thread.
[[nodiscard]] PredictionCheck compare(const actors::Prediction& prediction, const runtime::GridShape& grid,
                                      const runtime::MachineProfile& profile, const std::vector<RankTotals>& ranks);

}  // namespace ranvier::apps
