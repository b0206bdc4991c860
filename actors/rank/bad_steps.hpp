// Detects bad steps (loss or gradient norm not finite, loss spike) and selects the action. Actions:
//
//   stop      end the job
//   skip      drop the update; the next step uses the next samples
//   rollback  resume from the last checkpoint and drop the bad step's samples
//
// Input is values that all ranks agreed on, so all ranks decide identically. One thread at a time.
#pragma once

#include "actors/rank/recent_median.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace ranvier::actors {

struct BadStepOptions {
  enum class Action { stop, skip, rollback };
  Action action = Action::stop;
  double spike_factor = 0;  ///< a loss above this multiple of the recent median is a spike; 0 disables
  std::int64_t limit = 10;  ///< maximum number of bad steps in a row; one more ends the job
};
[[nodiscard]] const char* to_string(BadStepOptions::Action action) noexcept;

/// Bad steps without a good one between them.
struct BadStepRow {
  std::int64_t last = 0;   ///< last bad step; 0: none
  std::int64_t count = 0;  ///< number of bad steps in a row
};

struct BadStep {
  enum class Reason { loss_not_finite, norm_not_finite, loss_spike };
  std::int64_t step = 0;
  Reason reason = Reason::loss_not_finite;
  double loss = 0;
  double gradient_norm = 0;
  double median = 0;          ///< median of recent losses; set for spikes only
  std::int64_t in_a_row = 1;  ///< this one included
  BadStepOptions::Action action = BadStepOptions::Action::stop;

  friend bool operator==(const BadStep&, const BadStep&) = default;
};
/// "loss", "gradient norm" or "spike", for scripts.
[[nodiscard]] const char* to_string(BadStep::Reason reason) noexcept;
/// "gradient norm is inf at loss 3.1", "loss 9.3 is above 2 times the recent median 3.1".
[[nodiscard]] std::string describe(const BadStep& bad, const BadStepOptions& options);
/// Description of a bad step that ends the job, with remedies.
[[nodiscard]] std::string describe_end(const BadStep& bad, const BadStepOptions& options);

class BadSteps {
 public:
  /// Number of good steps before a loss can be a spike.
  static constexpr std::size_t fewest_losses = 16;

  /// All state that decisions depend on; part of checkpoints.
  struct State {
    RecentMedian losses;  ///< losses of good steps
    BadStepRow row;       ///< current row of bad steps
  };

  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  /// Returns nothing for a good step. A good step ends a row of bad steps only if it does not precede the last of them.
  /// So a step that is bad again after a rollback belongs to the same row.
  [[nodiscard]] std::optional<BadStep> judge(std::int64_t step, double loss, double gradient_norm);

  /// Returns the action after a replica mismatch, which counts as a bad step. It is never skip, because skipping does
  /// not repair states.
  [[nodiscard]] BadStepOptions::Action damaged(std::int64_t step);

  [[nodiscard]] const BadStepOptions& options() const noexcept { return options_; }
  [[nodiscard]] State& state() noexcept { return state_; }
  [[nodiscard]] const State& state() const noexcept { return state_; }

 private:
  /// Adds a bad step to the row and returns its action.
  [[nodiscard]] BadStepOptions::Action count(std::int64_t last_bad);

  BadStepOptions options_;
  State state_;
};

}  // namespace ranvier::actors
