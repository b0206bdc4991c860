// Measured peak rate of all devices together, the reference of measured MFU. The short measurement before training can
// be too low, so a faster step raises the ceiling to its own rate, and measured MFU never exceeds 100%. One thread at a
// time.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace ranvier::actors {

class FlopsCeiling {
 public:
  /// All rates are FLOP per second.
  struct Raise {
    std::int64_t step = 0;
    double from = 0;
    double to = 0;
  };

  FlopsCeiling() = default;  ///< unknown ceiling: every share is 0
  explicit FlopsCeiling(double measured) : measured_(measured), value_(measured) {}

  /// Returns `rate` relative to the ceiling. A higher rate first raises the ceiling.
  double share(std::int64_t step, double rate) {
    raised_.reset();
    if (value_ <= 0 || !std::isfinite(rate)) return 0;
    if (rate > value_) {
      raised_ = Raise{step, value_, rate};
      value_ = rate;
      if (raises_++ == 0) first_step_ = step;
      last_step_ = step;
    }
    return rate / value_;
  }

  [[nodiscard]] double measured() const noexcept { return measured_; }
  [[nodiscard]] double value() const noexcept { return value_; }
  /// The raise by the last call of share(), if any.
  [[nodiscard]] const std::optional<Raise>& raised() const noexcept { return raised_; }
  [[nodiscard]] std::int64_t raises() const noexcept { return raises_; }
  [[nodiscard]] std::int64_t first_step() const noexcept { return first_step_; }  ///< first step that raised it
  [[nodiscard]] std::int64_t last_step() const noexcept { return last_step_; }    ///< last step that raised it

 private:
  double measured_ = 0;
  double value_ = 0;
  std::optional<Raise> raised_;
  std::int64_t raises_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
};

}  // namespace ranvier::actors
