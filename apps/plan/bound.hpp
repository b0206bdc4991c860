// What a step of a candidate takes at least, and about, without simulating it. A bound is never above the time that
// actors::predict() gives: stages compute what they compute, in the order of a pipeline, and links carry what they
// carry, both as fast as what disturbs them allows at best. One thread at a time.
#pragma once

#include "actors/exchange/volume.hpp"
#include "actors/predict/prediction.hpp"
#include "apps/plan/stage_times.hpp"
#include "apps/plan/planned_candidate.hpp"
#include "runtime/work_cost.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace ranvier::apps {

struct Bound {
  double seconds = 0;   ///< of a step; no simulation of it is shorter
  double estimate = 0;  ///< what it may well take: at least the bound
};

class Bounds {
 public:
  /// `costs`: times of work on the profile's device. Both outlive this. `disturbances`: those of the predictions.
  Bounds(const Planner& planner, const runtime::CostModel& costs, const actors::Disturbances& disturbances = {});

  /// Before anything is planned: what its stages compute.
  [[nodiscard]] Bound of(const Candidate& candidate);
  /// Of a planned one: likewise, with what really is computed again, and what passes between ranks.
  [[nodiscard]] Bound of(const PlannedCandidate& trial);

 private:
  using ComputeKey =
      std::tuple<int, int, std::string, bool>;  // stages, microbatch, recomputation, deferred weights
  struct Passes {
    std::vector<PassSeconds> whole, last;
  };

  /// Of what stages and links take as usual.
  [[nodiscard]] Bound bound_of(double compute, double links, double estimate) const;
  [[nodiscard]] double links_seconds(const PlannedCandidate& trial, double& estimate);
  [[nodiscard]] actors::VolumeCounter& counter_of(const PlannedCandidate& trial, const actors::RankPlan& plan,
                                                  int stage, const actors::PlanChoices& choices);
  [[nodiscard]] double tiers_seconds(const PlannedCandidate& trial) const;

  const Planner* planner_;
  const runtime::CostModel* costs_;
  double min_work_, min_byte_;  ///< of their usual times
  LayerTimes times_;
  std::map<ComputeKey, double> computes_;
  std::map<std::string, actors::VolumeCounter>
      counters_;  // of columns, which hundreds of candidates have in common
};

}  // namespace ranvier::apps
