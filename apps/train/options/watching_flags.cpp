#include "apps/train/options/watching_flags.hpp"

#include "apps/view/serve_address.hpp"

namespace ranvier::apps {

void declare_watching(runtime::OptionTable& table, RunOptions& run) {
  using runtime::switch_on;
  using runtime::text;
  using runtime::whole;
  table.concern("Watching");
  table.add(
      {"serve", "[ADDRESS:]PORT",
       "show the run in a browser while it trains: rank 0 prints where; without an address to its own machine "
       "alone, with one (0.0.0.0: all) to those who have the printed token; port 0: any that is free",
       serve_binding(run.serve), "nowhere"});
  table.add(
      {"metrics", "FILE", "where to write one JSON line per step, after those of earlier runs", text(run.metrics)});
  table.add({"trace", "FILE", "where to write a Chrome/Perfetto trace", text(run.trace)});
  table.add(
      {"tensorboard", "DIR",
       "where to write an event file for TensorBoard: what --metrics has of steps, samples of text, these flags",
       text(run.tensorboard)});
  table.add({"log-every", "STEPS", "print the line of every so many steps, and of the first and the last",
             whole(run.log_every, 1)});
  table.add(
      {"quiet", "",
       "print neither what the start plans nor steps: warnings, evaluations, texts, checkpoints and the end alone",
       switch_on(run.quiet)});
}

}  // namespace ranvier::apps
