// Steps that a training should not learn from, told from others by what all ranks agreed on: a loss or a gradient's
// norm that is not finite, and a loss far above those of the steps before. And what becomes of them:
//
//   stop      the job ends
//   skip      the step does not count; the next one takes the next samples
//   rollback  all goes on from the last checkpoint, and no step takes the samples of the bad one
//
// Pure: every rank that saw the same steps says the same. One thread at a time.
#pragma once

#include "actors/watch/recent_median.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace ranvier::actors {

struct BadStepOptions {
  enum class Action { stop, skip, rollback };
  Action action = Action::stop;
  double spike_factor = 0;  ///< a loss above so many times the median of recent ones is bad; 0: none is too high
  std::int64_t limit = 10;  ///< bad steps in a row that the action is taken for; one more ends the job
};
[[nodiscard]] const char* to_string(BadStepOptions::Action action) noexcept;

struct BadStep {
  enum class Reason { loss_not_finite, norm_not_finite, loss_spike };
  std::int64_t step = 0;
  Reason reason = Reason::loss_not_finite;
  double loss = 0;
  double gradient_norm = 0;
  double median = 0;          ///< of recent losses, where the loss is above its multiple
  std::int64_t in_a_row = 1;  ///< this one included
  BadStepOptions::Action action = BadStepOptions::Action::stop;

  friend bool operator==(const BadStep&, const BadStep&) = default;
};
/// "loss", "gradient norm" or "spike", for scripts.
[[nodiscard]] const char* to_string(BadStep::Reason reason) noexcept;
/// For people: "the gradient's norm is inf at loss 3.1", "the loss 9.3 is above 2 times 3.1, the median of the …".
[[nodiscard]] std::string describe(const BadStep& bad, const BadStepOptions& options);
/// Of one that ends the job: that, and what may be done.
[[nodiscard]] std::string describe_end(const BadStep& bad, const BadStepOptions& options);

class BadSteps {
 public:
  /// No loss is called a spike before so many steps were good.
  static constexpr std::size_t fewest_losses = 16;

  /// What becomes of the next steps depends on this alone.
  struct State {
    RecentMedian losses;        ///< of good steps
    std::int64_t last_bad = 0;  ///< step; 0: none was
    std::int64_t in_a_row = 0;
  };

  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  /// None: it is good. A row of bad steps ends with a good one that is not before the last of them; so a bad step that
  /// is done again, after a rollback, still is one of the row.
  [[nodiscard]] std::optional<BadStep> judge(std::int64_t step, double loss, double gradient_norm);

  /// Copies of the states that the step left differ: what becomes of that. It counts as a bad step, and is not skipped,
  /// which would mend nothing.
  [[nodiscard]] BadStepOptions::Action damaged(std::int64_t step);

  [[nodiscard]] const BadStepOptions& options() const noexcept { return options_; }
  [[nodiscard]] State& state() noexcept { return state_; }
  [[nodiscard]] const State& state() const noexcept { return state_; }

 private:
  /// One more in a row, which ends with a good step that is not before `last_bad`.
  [[nodiscard]] BadStepOptions::Action count(std::int64_t last_bad);

  BadStepOptions options_;
  State state_;
};

}  // namespace ranvier::actors
