// What a run told in its records, the JSON lines of --metrics, in bounded memory: for a page that shows a run while it
// trains as for a report about a file. One thread at a time.
#pragma once

#include "apps/view/series.hpp"

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class History {
 public:
  struct Evaluation {
    std::int64_t step = 0;
    std::optional<double> loss;       ///< of validation samples
    std::optional<double> accuracy;   ///< share of those that were told right, of images and classes of texts
    std::optional<double> hellaswag;  ///< share of HellaSwag's questions
  };
  struct Sample {
    std::int64_t step = 0;
    std::string text;
  };
  struct Checkpoint {
    std::int64_t step = 0;
    double bytes = 0, seconds = 0, waited_seconds = 0;
    std::string failure;  ///< empty: it is whole
  };
  /// What people should look at.
  struct Warning {
    std::int64_t step = 0;
    std::string text;
  };
  struct Totals {
    std::int64_t steps = 0;       ///< that were trained and stayed
    double tokens = 0;            ///< of those
    double seconds = 0;           ///< of all steps, those that were done again included
    double repeated_seconds = 0;  ///< of steps that were done again
    std::int64_t bad_steps = 0, skipped = 0, checkpoints = 0;
    double checkpoint_waits = 0;  ///< seconds
  };

  explicit History(std::size_t points = 1 << 16) : points_(points), series_(points) {}

  /// A record. Returns false for what is none.
  bool take(std::string_view line);

  [[nodiscard]] const Series& series() const noexcept { return series_; }
  [[nodiscard]] const Totals& totals() const noexcept { return totals_; }
  /// The last record of a step, as it was; empty: none.
  [[nodiscard]] const boost::json::object& last() const noexcept { return last_; }
  // The last ones of each, the oldest first; of evaluations some of all.
  [[nodiscard]] const std::vector<Evaluation>& evaluations() const noexcept { return evaluations_; }
  [[nodiscard]] const std::deque<Sample>& samples() const noexcept { return samples_; }
  [[nodiscard]] const std::deque<Checkpoint>& checkpoints() const noexcept { return checkpoints_; }
  [[nodiscard]] const std::deque<Warning>& warnings() const noexcept { return warnings_; }
  /// What began runs that went on from another, or after one in the same file.
  [[nodiscard]] const std::deque<boost::json::object>& runs() const noexcept { return runs_; }
  /// Flags and their values, of the last run that told them; empty: none did.
  [[nodiscard]] const boost::json::object& configuration() const noexcept { return configuration_; }
  /// What --profile predicted, beside what was measured; empty: nothing.
  [[nodiscard]] const boost::json::object& prediction() const noexcept { return prediction_; }

 private:
  void step(std::int64_t step, const boost::json::object& record);
  void evaluation(std::int64_t step, const boost::json::object& record);
  /// Warns of ranks that the step names as stragglers and the one before did not, and of those that it names no more.
  void stragglers(std::int64_t step, const boost::json::object& record);
  void warn(std::int64_t step, std::string text);

  std::size_t points_;
  Series series_;
  Totals totals_;
  boost::json::object last_, prediction_, configuration_;
  std::vector<Evaluation> evaluations_;
  std::deque<Sample> samples_;
  std::deque<Checkpoint> checkpoints_;
  std::deque<Warning> warnings_;
  std::deque<boost::json::object> runs_;
  std::set<std::int64_t> straggling_;  // ranks, as the last step named them
};

/// A number of a record; NaN: it has none of that name.
[[nodiscard]] double number_of(const boost::json::object& record, std::string_view name);

}  // namespace ranvier::apps
