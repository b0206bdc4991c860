// "What if": the situations that a plan is compared in. Pure, but for reading profiles; any thread.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/plan/plan_options.hpp"
#include "apps/plan/planned_candidate.hpp"
#include "runtime/machine_profile.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// At most one of the circumstances beside the profile's is there.
struct Scenario {
  std::string label;
  runtime::MachineProfile profile;
  std::optional<SlowNode> slow_node = {};
  std::optional<SlowShare> slow_ranks = {}, slow_links = {};
  double jitter = 0;
  bool no_overlap = false;
  std::optional<int> world = {};  ///< ranks that are left
  int draw = 0;                   ///< of what chance decides: another number, something else
};

/// The profiles first, then what is asked about the first one. Throws ErrorCode::usage for what read_profile() refuses,
/// for more dead ranks than leave a node, and for what says nothing of such machines.
[[nodiscard]] std::vector<Scenario> scenarios_of(
    const PlanOptions& options, const std::function<runtime::MachineProfile(const std::string&)>& read_profile);

/// Throws ErrorCode::usage where ranks of the planner need links that its profile says nothing of.
void check_links(const Planner& planner);

/// Those flags of ranvier-train, for as many ranks as there are.
[[nodiscard]] std::vector<GivenFlag> flags_in(const Scenario& scenario, std::vector<GivenFlag> flags);

/// Shares are of ranks or nodes that chance has drawn, the same ones for the same draw; one at least. Throws
/// ErrorCode::usage for a node that there is not.
[[nodiscard]] actors::Disturbances disturbances_of(const Scenario& scenario, const Planner& planner);

}  // namespace ranvier::apps
