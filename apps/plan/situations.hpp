// "What if": the situations that a plan is compared in. Pure, but for reading profiles; any thread.
#pragma once

#include "actors/predict/prediction.hpp"
#include "apps/plan/plan_options.hpp"
#include "apps/plan/trial.hpp"
#include "runtime/machine_profile.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// At most one of the circumstances beside the profile's is there.
struct Situation {
  std::string label;
  runtime::MachineProfile profile;
  std::optional<SlowNode> slow_node = {};
  std::optional<SlowShare> slow_ranks = {}, slow_links = {};
  double jitter = 0;
  bool no_overlap = false;
  std::optional<int> world = {};  ///< ranks that are left
};

/// The profiles first, then what is asked about the first one. Throws ErrorCode::usage for what read_profile() refuses,
/// and for more dead ranks than leave a node.
[[nodiscard]] std::vector<Situation> situations_of(
    const PlanOptions& options, const std::function<runtime::MachineProfile(const std::string&)>& read_profile);

/// Those flags of ranvier-train, for as many ranks as there are.
[[nodiscard]] std::vector<GivenFlag> flags_in(const Situation& situation, std::vector<GivenFlag> flags);

/// Shares are of ranks or nodes that chance has drawn, the same ones each time; one at least. Throws ErrorCode::usage
/// for a node that there is not.
[[nodiscard]] actors::Disturbances disturbances_of(const Situation& situation, const Planner& planner);

}  // namespace ranvier::apps
