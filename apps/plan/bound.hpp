// Lower bound and estimate of a candidate's step time, without simulation. A bound never exceeds the time of
// actors::predict(). It is the larger of the stages' compute time in pipeline order and of the links' transfer time,
// both with the smallest disturbance. One thread at a time.
#pragma once

#include "actors/predict/prediction.hpp"
#include "actors/predict/volume.hpp"
#include "apps/plan/planned_candidate.hpp"
#include "apps/plan/stage_times.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace ranvier::apps {

struct Bound {
  double seconds = 0;   ///< lower bound of the step time; no simulation is shorter
  double estimate = 0;  ///< likely step time, at least the bound
};

class Bounds {
 public:
  /// The planner outlives this. `disturbances`: as in predictions.
  explicit Bounds(const Planner& planner, const actors::Disturbances& disturbances = {});

  /// Bound of an unplanned candidate: compute time only.
  [[nodiscard]] Bound of(const Candidate& candidate);
  /// Bound of a planned candidate: with actual recomputation and traffic between ranks.
  [[nodiscard]] Bound of(const PlannedCandidate& trial);

 private:
  using ComputeKey =
      std::tuple<int, int, std::string, bool>;  // stages, microbatch, recomputation, deferred weights
  struct Passes {
    std::vector<PassSeconds> whole, last;
  };

  /// Applies the smallest disturbance to undisturbed times of stages and links.
  [[nodiscard]] Bound bound_of(double compute, double links, double estimate) const;
  [[nodiscard]] double links_seconds(const PlannedCandidate& trial, double& estimate);
  [[nodiscard]] actors::VolumeCounter& counter_of(const PlannedCandidate& trial, const actors::RankPlan& plan,
                                                  int stage, const actors::PlanChoices& choices);
  [[nodiscard]] double tiers_seconds(const PlannedCandidate& trial) const;

  const Planner* planner_;
  runtime::ProfileCosts costs_;  ///< on the profile's device
  double min_work_, min_byte_;   ///< smallest factors on the times of work and bytes
  LayerTimes times_;
  std::map<ComputeKey, double> computes_;
  std::map<std::string, actors::VolumeCounter> counters_;  // cached per column; hundreds of candidates share one
};

}  // namespace ranvier::apps
