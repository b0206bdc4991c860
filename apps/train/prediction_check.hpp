// What a profile of the machines says about a run, beside what the run took: at its end, for those who have one.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/program/profile_search_path.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/totals.hpp"
#include "runtime/machine_profile.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// What a run is compared with at its end.
struct ProfileOfRun {
  std::optional<runtime::MachineProfile> profile;
  /// A line that says where it was found, or why what was found is not used. Empty: --profile named it, or there is
  /// none.
  std::string remark;
};

/// Before the training. A profile that --profile names has to be there and of the run's kind of device: throws
/// ErrorCode::usage that names it, otherwise. One that was found elsewhere is left out with a remark.
[[nodiscard]] ProfileOfRun profile_of_run(const TrainOptions& options, const ProfileSearchPath& places,
                                          int threads);

struct PredictionCheck {
  std::string text;    ///< a table for people, or one line that says why there is none
  std::string record;  ///< a JSON object for the metrics; empty: there is none
};

/// `trainer` as the run had it, with a rank that its fault slows down. Takes seconds at most: where a prediction would
/// take longer it is left out. Throws nothing of what predict() does: the training is over, and the text says what it
/// was.
[[nodiscard]] PredictionCheck check_prediction(const RankRun& run, const actors::TrainerOptions& trainer,
                                               const runtime::MachineProfile& profile,
                                               const std::vector<RankTotals>& ranks);

/// The same of a prediction that was made. Pure; any thread. At least one step was measured.
[[nodiscard]] PredictionCheck compare(const actors::Prediction& prediction, const runtime::GridShape& grid,
                                      const runtime::MachineProfile& profile, const std::vector<RankTotals>& ranks);

}  // namespace ranvier::apps
