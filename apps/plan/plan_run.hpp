// One run of ranvier-plan: a search per scenario, tables and files. One thread calls.
#pragma once

#include "apps/plan/plan_options.hpp"
#include "apps/plan/ranking.hpp"
#include "apps/program/profile_search_path.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <functional>
#include <optional>
#include <string>

namespace ranvier::apps {

/// Sources of predictions and profiles; tests replace them.
struct PlanTools {
  Predictor predict = actors::predict;
  std::function<runtime::MachineProfile(const std::string& path_or_name)> read_profile =
      runtime::read_machine_profile;
  /// find_profile() of this machine; empty: --profile is required.
  std::function<std::optional<std::string>(const ProfileSubject&)> find_profile = {};
  /// Prints a progress line; the next call replaces it unless it stays. Empty: no progress is printed.
  std::function<void(const std::string& text, bool stays)> print = {};
};

struct PlanResult {
  int status = 0;
  std::string text;  ///< for standard output
};

/// Writes the files that the options name, each completely or not at all. Throws ErrorCode::usage if the flags cannot
/// be planned, and ErrorCode::io.
[[nodiscard]] PlanResult run_plan(const PlanOptions& options, const PlanTools& tools);

}  // namespace ranvier::apps
