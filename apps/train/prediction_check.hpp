// What a profile of the machines says about a run, beside what the run took: at its end, for those who have one.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/totals.hpp"
#include "runtime/machine_profile.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// For --profile, before the training. Throws ErrorCode::usage that names it, where there is no such profile or it is
/// of another kind of device.
[[nodiscard]] runtime::MachineProfile profile_of_run(const TrainOptions& options);

struct PredictionCheck {
  std::string text;    ///< a table for people, or one line that says why there is none
  std::string record;  ///< a JSON object for the metrics; empty: there is none
};

/// `trainer` as the run had it. Takes seconds at most: where a prediction would take longer it is left out. Throws
/// nothing of what predict() does: the training is over, and the text says what it was.
[[nodiscard]] PredictionCheck check_prediction(const RankRun& run, const actors::TrainerOptions& trainer,
                                               const runtime::MachineProfile& profile,
                                               const std::vector<RankTotals>& ranks);

/// The same of a prediction that was made. Pure; any thread. At least one step was measured.
[[nodiscard]] PredictionCheck compare(const actors::Prediction& prediction, const runtime::GridShape& grid,
                                      const runtime::MachineProfile& profile, const std::vector<RankTotals>& ranks);

}  // namespace ranvier::apps
