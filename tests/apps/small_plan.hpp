// Plans of a small job for tests of ranvier-plan, with predictions that take no time.
#pragma once

#include "apps/plan/plan_run.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/effort.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

inline apps::PlanOptions parse(std::vector<std::string> words) {
  words.insert(words.begin(), "ranvier-plan");
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return apps::parse_plan_options(static_cast<int>(arguments.size()), arguments.data());
}

/// `words`; with sanitizers only a tenth of the candidates, with the same code paths; given flags are kept.
inline std::vector<std::string> few(std::vector<std::string> words) {
  if (!test::sanitized) return words;
  for (const auto& [flag, value] : {std::pair{"--offload", "none"}, {"--policy", "message-driven"}})
    if (std::find(words.begin(), words.end(), flag) == words.end()) words.insert(words.end(), {flag, value});
  return words;
}

/// 4 ranks on 2 nodes.
inline std::vector<std::string> small_job(const std::vector<std::string>& more) {
  std::vector<std::string> words{
      "--layers",    "4", "--hidden",     "64", "--heads",   "2",        "--sequence-length", "32", "--world", "4",
      "--node-size", "2", "--batch-size", "8",  "--profile", "test-cpu", "--simulations",     "0",  "--jobs",  "1"};
  words.insert(words.end(), more.begin(), more.end());
  return few(std::move(words));
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

/// Contents of a file.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ranvier::tests
