// Plans of a small job for tests of ranvier-plan, with predictions that take no time.
#pragma once

#include "apps/plan/plan_run.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/printed_errors.hpp"
#include "tests/effort.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace ranvier::tests {

inline apps::PlanOptions parse(const Flags& flags) {
  return parse_flags("ranvier-plan", flags, apps::parse_plan_options);
}

/// `flags`; with sanitizers only a tenth of the candidates, with the same code paths; given flags are kept.
inline Flags few(Flags flags) {
  if (!test::sanitized) return flags;
  for (const auto& [flag, value] : {std::pair{"--offload", "none"}, {"--policy", "message-driven"}})
    if (std::find(flags.begin(), flags.end(), flag) == flags.end()) flags.insert(flags.end(), {flag, value});
  return flags;
}

/// 4 ranks on 2 nodes.
inline Flags small_job(const Flags& more) {
  return few(
      join("--layers 4 --hidden 64 --heads 2 --sequence-length 32 --world 4 --node-size 2 --batch-size 8 "
           "--profile test-cpu --simulations 0 --jobs 1",
           more));
}

/// Faster with more stages and larger microbatches, and with faster links; slow ranks make it slower.
inline actors::Prediction invented(const models::Architecture&, const models::SampleSource&,
                                   const actors::TrainerOptions& options, const runtime::MachineProfile& profile,
                                   const actors::PredictionOptions& how) {
  actors::Prediction prediction;
  double slowest = 1;
  for (const double slow : how.disturbances.slow_ranks) slowest = std::max(slowest, slow);
  prediction.step_seconds = slowest * (1.0 / options.grid.g_inter + 0.1 / options.microbatch_size +
                                       1e8 / profile.links.inter_node.bytes_per_second);
  prediction.tokens_per_second = 32.0 * options.batch_size / prediction.step_seconds;
  prediction.mfu = 0.25;
  prediction.traffic = {{.to_device = 3 << 20}, {.to_device = 5 << 20}, {}, {}};
  prediction.device_bytes = 1 << 20;
  return prediction;
}

inline apps::PlanTools invented_tools() {
  return {.predict = invented, .read_profile = [](const std::string& name) {
            if (name == "test-cpu") return plan_profile(false);
            if (name == "test-gpu") return plan_profile(true);
            return runtime::read_machine_profile(name);
          }};
}

/// ranvier-plan's result for small_job() with these flags.
inline apps::PlanResult plan_small_job(const Flags& flags, const apps::PlanTools& tools = invented_tools()) {
  return run_plan(parse(small_job(flags)), tools);
}
inline boost::json::value plan_in_json(const Flags& flags) {
  return boost::json::parse(plan_small_job(join(flags, "--json")).text);
}

/// Checks that ranvier-plan refuses these flags with a usage error that has these words.
inline void refused_plan(const Flags& flags, std::string_view words) {
  CAPTURE(flags.line());
  check_usage_error({words}, [&] { static_cast<void>(run_plan(parse(flags), invented_tools())); });
}

}  // namespace ranvier::tests
