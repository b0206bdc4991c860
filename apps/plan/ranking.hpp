// Ranks candidate configurations (grid, sharding, tiers) for the machines of one profile: plans the candidates, prunes
// by lower bounds, simulates the rest. One thread calls; simulations run on several threads.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/plan/search.hpp"
#include "apps/plan/planned_candidate.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ranvier::apps {

/// actors::predict() or a test's replacement. Callable from any thread, several at a time.
using Predictor = std::function<actors::Prediction(const models::Architecture&, const models::SampleSource&,
                                                   const actors::TrainerOptions&, const runtime::MachineProfile&,
                                                   const actors::PredictionOptions&)>;

/// Result of one candidate, with the candidates that share its row of the ranking.
struct Ranked {
  Candidate candidate;
  PlannedCandidate trial;           ///< trial without its plans
  std::optional<Bound> bound = {};  ///< lower bound; none outside a search
  actors::Prediction prediction = {};
  std::vector<GivenFlag> config = {};
  std::vector<Ranked> alternatives = {};  ///< other candidates of the row (rows.hpp), fastest first
};

/// Candidate that exceeds the capacity by the least.
struct Closest {
  Candidate candidate;
  double fullness = 0;
  std::string lacks;
};

/// Plans candidates one after another, and counts those that do not fit or cannot run.
class CandidateFilter {
 public:
  /// The planner outlives this.
  explicit CandidateFilter(const Planner& planner) : planner_(&planner) {}

  /// None if the candidate does not fit or cannot run.
  [[nodiscard]] std::optional<PlannedCandidate> plan(const Candidate& candidate);
  void leave_out(const std::string& why) { ++left_out[why]; }

  std::map<std::string, std::size_t> left_out;  ///< number of candidates by reason
  std::optional<Closest> closest;

 private:
  /// Counts a candidate that needs more memory than available.
  void exceeds(const Candidate& candidate, const PlannedCandidate& trial);

  const Planner* planner_;
  /// Planner::smallest_like() of each family, and its trial; none if its flags are incompatible.
  std::map<std::tuple<int, std::string, int, std::string, std::string>,
           std::pair<Candidate, std::optional<PlannedCandidate>>>
      families_;
};

struct Ranking {
  std::size_t candidates = 0;
  std::map<std::string, std::size_t> left_out;  ///< number of candidates left out, by reason
  SearchResult search;
  std::vector<Ranked> best;  ///< representative of each row, fastest first
  std::optional<Closest> closest;
};

/// Returns at most `limits.best` rows, and only `closest` if nothing fits. Rows with offloaded optimizer states are
/// simulated once more, beyond `limits.simulations`, with an --optimizer-budget that fills the device. It replaces a
/// row if it is faster by more than row_tolerance. Throws ErrorCode::usage if no grid is possible.
[[nodiscard]] Ranking rank_candidates(const Planner& planner, const Predictor& predict, const SearchLimits& limits,
                                      const actors::PredictionOptions& how = {});

/// Plans and predicts one candidate for another scenario; none if it does not fit or cannot run.
[[nodiscard]] std::optional<Ranked> predict_one(const Planner& planner, const Predictor& predict,
                                                const Candidate& candidate,
                                                const actors::PredictionOptions& how = {});

/// Predicts a planned candidate with the work and link times of another machine.
[[nodiscard]] actors::Prediction predict_on(const Planner& planner, const Predictor& predict, const Ranked& ranked,
                                            const runtime::MachineProfile& machine,
                                            const actors::PredictionOptions& how = {});

/// Default prediction for `world` ranks: starting at 256, only one row of each kind is simulated.
[[nodiscard]] actors::PredictionOptions usual_prediction(int world);

}  // namespace ranvier::apps
