#include "apps/train/options/plan_flags.hpp"

namespace ranvier::apps {

void declare_planning(runtime::OptionTable& table, RunOptions& run) {
  table.concern("Planning");
  table.add(
      {"profile", "NAME|FILE",
       "what these machines do: a file of `ranvier-bench profile --write-profile FILE`, or the name of one that "
       "ships with the program; the end shows what it predicts beside what was measured",
       runtime::text(run.profile), "none"});
}

}  // namespace ranvier::apps
