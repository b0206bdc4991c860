// Measured rate of all ranks' devices together, which measured MFU is a share of. A measurement takes moments, and a
// machine is slower in some of them. So a faster step raises the ceiling to its own rate, and no share is above 1. A
// value; one thread at a time.
#pragma once

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

  FlopsCeiling() = default;  ///< not known: every share is 0, and stays so
  explicit FlopsCeiling(double measured) : measured_(measured), value_(measured) {}

  /// What `rate`, of step `step`, is of the ceiling, which it raises first if it is above it.
  double share(std::int64_t step, double rate);

  [[nodiscard]] double measured() const noexcept { return measured_; }
  [[nodiscard]] double value() const noexcept { return value_; }
  /// By the step that share() was asked about last, if it did.
  [[nodiscard]] const std::optional<Raise>& raised() const noexcept { return raised_; }
  [[nodiscard]] std::int64_t raises() const noexcept { return raises_; }
  [[nodiscard]] std::int64_t first_step() const noexcept { return first_step_; }  ///< that raised it
  [[nodiscard]] std::int64_t last_step() const noexcept { return last_step_; }    ///< likewise

 private:
  double measured_ = 0;
  double value_ = 0;
  std::optional<Raise> raised_;
  std::int64_t raises_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
};

}  // namespace ranvier::actors
