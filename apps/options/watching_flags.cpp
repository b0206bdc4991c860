#include "apps/options/watching_flags.hpp"

#include "apps/view/serve_address.hpp"

namespace ranvier::apps {

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
