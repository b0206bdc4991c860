// "What if" scenarios that are compared side by side. Functions are pure, except that some read profiles; callable from
// any thread.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/plan/plan_options.hpp"
#include "apps/plan/planned_candidate.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Scenario: a profile with at most one change.
struct Scenario {
  std::string label;
  runtime::MachineProfile profile;
  std::optional<SlowNode> slow_node = {};
  std::optional<SlowShare> slow_ranks = {}, slow_links = {};
  double jitter = 0;
  bool no_overlap = false;
  std::optional<int> world = {};  ///< remaining ranks
  int draw = 0;                   ///< random seed
};

/// Scenarios of all profiles, then the changes of the first profile. Throws ErrorCode::usage if read_profile() refuses
/// a profile, if no node is left, or if a flag does not apply to the profile's machines.
[[nodiscard]] std::vector<Scenario> scenarios_of(
    const PlanOptions& options, const std::function<runtime::MachineProfile(const std::string&)>& read_profile);

/// Throws ErrorCode::usage if the planner's ranks need links without rates in its profile.
void check_links(const Planner& planner);

/// Flags of ranvier-train with the scenario's number of ranks.
[[nodiscard]] std::vector<GivenFlag> flags_in(const Scenario& scenario, std::vector<GivenFlag> flags);

/// Draws slow ranks or nodes with the scenario's seed, at least one. Throws ErrorCode::usage if --slow-node does not
/// exist.
[[nodiscard]] actors::Disturbances disturbances_of(const Scenario& scenario, const Planner& planner);

}  // namespace ranvier::apps
