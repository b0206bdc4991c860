#include "apps/train/options/plan_flags.hpp"

#include "runtime/machine_profile.hpp"

#include <utility>

namespace ranvier::apps {

void declare_planning(runtime::OptionTable& table, RunOptions& run) {
  table.concern("Planning");
  runtime::OptionBinding profile = runtime::text(run.profile);
  profile.words = runtime::shipped_profiles();
  table.add(
      {"plan", "auto|none",
       "auto: choose before the first step what was not given of --g-inter, --g-data, --shard, --group-size, "
       "--offload, --microbatch-size, --recompute, --policy and the algorithms of collectives, by predictions "
       "with --profile",
       runtime::choice<bool>(run.plans, {{"none", false}, {"auto", true}})});
  table.add(
      {"profile", "NAME|FILE",
       "what these machines do: a file of `ranvier-bench profile --write-profile FILE`, or the name of one that "
       "ships with the program; the end shows what it predicts beside what was measured. Otherwise RANVIER_PROFILE "
       "of the environment says it, or a file that `ranvier-bench profile` left for this host; none: neither",
       std::move(profile), "what is found"});
}

}  // namespace ranvier::apps
