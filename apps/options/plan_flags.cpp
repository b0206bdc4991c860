#include "apps/options/plan_flags.hpp"

#include "runtime/machine/machine_profile.hpp"

#include <utility>

namespace ranvier::apps {

void declare_planning(TrainTable& table, RunOptions& run) {
  table.concern("Planning");
  OptionBinding profile = text(run.profile);
  profile.words = runtime::shipped_profiles();
  // The flags that it chooses are compared on their own.
  table.add({Effect::run, "plan", "auto|none",
             "auto: choose the grid, sharding, offload, microbatch size, recomputation, schedule and collective "
             "algorithms that are not given, by prediction with --profile",
             choice<bool>(run.plans, {{"none", false}, {"auto", true}})},
            {.usual = true, .plan = PlanRole::request});
  table.add({Effect::run, "profile", "NAME|FILE",
             "Machine profile for predictions: a file of `ranvier-bench profile --write-profile FILE`, or the name "
             "of a shipped profile; none disables predictions",
             std::move(profile), "RANVIER_PROFILE, or the file that `ranvier-bench profile` left for this host"},
            {.plan = PlanRole::request});
}

}  // namespace ranvier::apps
