// Stores metrics over any number of steps in bounded memory: neighbouring steps are merged into bins with mean, minimum
// and maximum. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Metrics that are plotted over steps.
enum class Metric : std::uint8_t { loss, norm, learning_rate, throughput, seconds, mfu, measured_mfu };
inline constexpr std::size_t figure_count = 7;
inline constexpr std::array<std::string_view, figure_count> figure_names{
    "loss", "norm", "lr", "throughput", "seconds", "mfu", "measured_mfu"};

/// Values of one metric in a bin. If `count` is 0, no step has a value and the other fields are undefined.
struct BinnedValue {
  double mean = 0;
  float least = 0, most = 0;
  std::uint32_t count = 0;

  void join(const BinnedValue& other);
};

/// A bin: steps `first` to `last`.
struct StepBin {
  std::int64_t first = 0, last = 0;
  std::array<BinnedValue, figure_count> values;

  [[nodiscard]] const BinnedValue& operator[](Metric metric) const {
    return values[static_cast<std::size_t>(metric)];
  }
  void join(const StepBin& next);
};

class Series {
 public:
  /// `most`: maximum number of bins, at least 2.
  explicit Series(std::size_t most = 1 << 16);

  /// Adds a step; non-finite values count as missing. Steps must ascend, except after a rollback: then this step and
  /// all later ones are dropped first. Returns the total duration of the dropped steps in seconds.
  double add(std::int64_t step, const std::array<double, figure_count>& values);

  /// Bins of steps `first` to `last` in order, merged to at most `most`.
  [[nodiscard]] std::vector<StepBin> between(std::int64_t first, std::int64_t last, std::size_t most) const;
  [[nodiscard]] std::size_t size() const noexcept { return points_.size(); }
  /// Last step; 0: none.
  [[nodiscard]] std::int64_t last_step() const noexcept { return points_.empty() ? 0 : points_.back().last; }

 private:
  std::size_t max_;
  std::int64_t stride_ = 1;  // steps per bin
  std::vector<StepBin> points_;
};

/// Plot over all steps for a terminal: `columns` × `lines` braille characters of 2 × 4 dots, and a scale on the left.
/// Empty if the values cover fewer than 8 steps or are all equal.
[[nodiscard]] std::string text_plot(const Series& series, Metric metric, std::size_t columns = 72,
                                    std::size_t lines = 8);

}  // namespace ranvier::apps
