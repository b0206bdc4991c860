#include "apps/options/flag_groups.hpp"
#include "apps/view/serve_address.hpp"
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

void declare_watching(TrainTable& table, RunOptions& run) {
  table.concern("Watching");
  table.add({Effect::run, "serve", "[ADDRESS:]PORT",
             "Serve a live page and print its URL. Without ADDRESS, only this machine has access; with ADDRESS "
             "(0.0.0.0: all interfaces), everyone with the printed token. Port 0: any free port",
             serve_binding(run.serve), "off"},
            {.usual = true});
  table.add({Effect::run, "metrics", "FILE", "Write one JSON object per step to this file; a resumed run appends",
             text(run.metrics)},
            {.usual = true, .plan = PlanRole::output});
  table.add({Effect::run, "trace", "FILE", "Write a Chrome/Perfetto trace to this file", text(run.trace)},
            {.plan = PlanRole::output});
  table.add(
      {Effect::run, "tensorboard", "DIR",
       "Write a TensorBoard event file to this directory: metrics, generated texts, flags", text(run.tensorboard)},
      {.also = "tensorboard-dir logging-dir report-to", .plan = PlanRole::output});
  table.add({Effect::run, "log-every", "STEPS", "Print every Nth step, and the first and the last",
             whole(run.log_every, 1)},
            {.also = "log-interval logging-steps"});
  table.add({Effect::run, "quiet", "",
             "Print only warnings, evaluations, generated texts, checkpoints and the final summary",
             switch_on(run.quiet)});
}

}  // namespace ranvier::apps
