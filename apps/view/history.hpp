// Stores a run's records (JSON lines of --metrics) in bounded memory, for the live page and for reports. One thread at
// a time.
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
    std::optional<double> loss;       ///< validation loss
    std::optional<double> accuracy;   ///< fraction of correct predictions in image and text classification
    std::optional<double> hellaswag;  ///< fraction of correct HellaSwag questions
  };
  struct Sample {
    std::int64_t step = 0;
    std::string text;
  };
  struct Checkpoint {
    std::int64_t step = 0;
    double bytes = 0, seconds = 0, waited_seconds = 0;
    std::string failure;  ///< empty: complete
  };
  /// Event that needs the user's attention.
  struct Warning {
    std::int64_t step = 0;
    std::string text;
  };
  struct Totals {
    std::int64_t steps = 0;       ///< steps, without those that were repeated later
    double tokens = 0;            ///< tokens of `steps`
    double seconds = 0;           ///< duration of all steps, repeated ones included
    double repeated_seconds = 0;  ///< duration of steps that were repeated later
    std::int64_t bad_steps = 0, skipped = 0, checkpoints = 0;
    double checkpoint_waits = 0;  ///< seconds that checkpoints stalled the optimizer
  };

  explicit History(std::size_t points = 1 << 16) : points_(points), series_(points) {}

  /// Adds a record. Returns false if the line is not a record.
  bool take(std::string_view line);

  [[nodiscard]] const Series& series() const noexcept { return series_; }
  [[nodiscard]] const Totals& totals() const noexcept { return totals_; }
  /// Last record of a step, unchanged; empty: none.
  [[nodiscard]] const boost::json::object& last() const noexcept { return last_; }
  // The last ones of each kind, oldest first; evaluations are thinned out over the whole run instead.
  [[nodiscard]] const std::vector<Evaluation>& evaluations() const noexcept { return evaluations_; }
  [[nodiscard]] const std::deque<Sample>& samples() const noexcept { return samples_; }
  [[nodiscard]] const std::deque<Checkpoint>& checkpoints() const noexcept { return checkpoints_; }
  [[nodiscard]] const std::deque<Warning>& warnings() const noexcept { return warnings_; }
  /// "run" records, written by runs that resume or append to the file.
  [[nodiscard]] const std::deque<boost::json::object>& runs() const noexcept { return runs_; }
  /// Flags and their values of the last run that recorded them; empty: none did.
  [[nodiscard]] const boost::json::object& configuration() const noexcept { return configuration_; }
  /// Prediction of --profile and the measured values; empty: none.
  [[nodiscard]] const boost::json::object& prediction() const noexcept { return prediction_; }

 private:
  void step(std::int64_t step, const boost::json::object& record);
  void evaluation(std::int64_t step, const boost::json::object& record);
  /// Adds warnings about ranks that became or ceased to be stragglers in this step.
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
  std::set<std::int64_t> straggling_;  // straggler ranks of the last step
};

/// The JSON object of a line of --metrics; none if the line is another text.
[[nodiscard]] std::optional<boost::json::object> parse_record(std::string_view line);
/// Object in a record; null if it is missing.
[[nodiscard]] const boost::json::object* object_of(const boost::json::object& record, std::string_view name);
/// Whole number in a record; none if it is missing.
[[nodiscard]] std::optional<std::int64_t> whole_of(const boost::json::object& record, std::string_view name);
/// Number in a record; NaN if it is missing.
[[nodiscard]] double number_of(const boost::json::object& record, std::string_view name);
/// Text in a record; empty if it is missing.
[[nodiscard]] std::string text_of(const boost::json::object& record, std::string_view name);

}  // namespace ranvier::apps
