// What a training measured over its steps, in bounded memory however many steps there are: values of neighbours are
// joined, with their mean, least and most, once there are more than are kept. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// What is drawn over steps.
enum class Metric : std::uint8_t { loss, norm, learning_rate, throughput, seconds, mfu, measured_mfu };
inline constexpr std::size_t figure_count = 7;
inline constexpr std::array<std::string_view, figure_count> figure_names{
    "loss", "norm", "lr", "throughput", "seconds", "mfu", "measured_mfu"};

/// One value, or several joined. `count` is 0 where no step had one; the others say nothing then.
struct BinnedValue {
  double mean = 0;
  float least = 0, most = 0;
  std::uint32_t count = 0;

  void join(const BinnedValue& other);
};

/// Steps `first` to `last`, one after another.
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
  /// Keeps at most `most` points, at least 2.
  explicit Series(std::size_t most = 1 << 16);

  /// Steps come in their order; what is not finite counts as none. A step that was there already, or one before it,
  /// begins anew: what was from there on is forgotten. Returns how many seconds of steps that was.
  double add(std::int64_t step, const std::array<double, figure_count>& values);

  /// Those of steps `first` to `last`, as at most `most` points, in order.
  [[nodiscard]] std::vector<StepBin> between(std::int64_t first, std::int64_t last, std::size_t most) const;
  [[nodiscard]] std::size_t size() const noexcept { return points_.size(); }
  /// 0: none.
  [[nodiscard]] std::int64_t last_step() const noexcept { return points_.empty() ? 0 : points_.back().last; }

 private:
  std::size_t max_;
  std::int64_t stride_ = 1;  // steps of a point
  std::vector<StepBin> points_;
};

}  // namespace ranvier::apps
