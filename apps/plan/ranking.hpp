// The best candidates on machines of one profile: planned, cut by bounds, simulated. One thread calls; simulations run
// on several.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/plan/search.hpp"
#include "apps/plan/planned_candidate.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// actors::predict(), or what stands for it in tests. Any thread, several at a time.
using Predictor = std::function<actors::Prediction(const models::Architecture&, const models::SampleSource&,
                                                   const actors::TrainerOptions&, const runtime::MachineProfile&,
                                                   const actors::PredictionOptions&)>;

/// One candidate with what became of it, and those that share its row of the ranking.
struct Ranked {
  Candidate candidate;
  PlannedCandidate trial;           ///< without its plans
  std::optional<Bound> bound = {};  ///< none: it was not searched for
  actors::Prediction prediction = {};
  std::vector<GivenFlag> config = {};
  std::vector<Ranked> alternatives = {};  ///< the fastest first; rows.hpp says which
};

/// The candidate that came nearest to fitting.
struct Closest {
  Candidate candidate;
  double fullness = 0;
  std::string lacks;
};

struct Ranking {
  std::size_t candidates = 0;
  std::map<std::string, std::size_t> left_out;  ///< why, and how many
  SearchResult search;
  std::vector<Ranked> best;  ///< the candidate that represents each row, the fastest first
  std::optional<Closest> closest;
};

/// `limits.best` rows. Throws ErrorCode::usage if no grid is possible. If nothing fits, only `closest` is set.
[[nodiscard]] Ranking rank_candidates(const Planner& planner, const runtime::CostModel& costs,
                                      const Predictor& predict, const SearchLimits& limits,
                                      const actors::PredictionOptions& how = {});

/// What one candidate takes under other circumstances; none: it does not fit, or cannot run there.
[[nodiscard]] std::optional<Ranked> predict_one(const Planner& planner, const Predictor& predict,
                                                const Candidate& candidate,
                                                const actors::PredictionOptions& how = {});

/// What a candidate takes where work and links take other times, planned as it was.
[[nodiscard]] actors::Prediction predict_on(const Planner& planner, const Predictor& predict, const Ranked& ranked,
                                            const runtime::MachineProfile& machine,
                                            const actors::PredictionOptions& how = {});

/// How jobs of so many ranks are predicted: where there are many, with one of each kind of rows.
[[nodiscard]] actors::PredictionOptions usual_prediction(int world);

}  // namespace ranvier::apps
