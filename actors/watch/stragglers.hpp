// Which ranks compute slower than the other ranks of their stage, step after step, and what that costs the job. One
// thread at a time.
#pragma once

#include "runtime/grid.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::actors {

struct Straggler {
  int rank = 0;
  double times = 1;             ///< its compute time over the median of its stage's rows
  double seconds_per_step = 0;  ///< by which steps would be shorter if it took that median
};

class Stragglers {
 public:
  static constexpr double factor = 1.2;   ///< over the median, from where on a rank is one …
  static constexpr int steps = 20;        ///< … after so many steps in a row …
  static constexpr int steps_to_end = 5;  ///< … until so many in a row were below

  struct Change {
    std::vector<Straggler> begin;  ///< that were none before
    std::vector<int> end;          ///< that are none any more
  };

  /// `passes`: that a rank's step is cut into, microbatches of a row times slices of the model on a rank: the slowest
  /// stage waits for one of each other stage before it begins, or after it.
  Stragglers(const runtime::GridShape& grid, int passes);

  /// `compute_seconds`: what the passes of a step took each rank. Of a stage with two rows the slower one is compared
  /// with the faster one; of one with a single row nothing is said.
  Change step(const std::vector<double>& compute_seconds);

  /// All that are now, by rank; figures are means over about the last `steps` steps.
  [[nodiscard]] const std::vector<Straggler>& now() const noexcept { return now_; }

 private:
  struct Recent {
    int slow = 0, usual = 0;  // steps in a row
    bool named = false;
    double times = 0, cost = 0;  // means
    int counted = 0;             // steps in them
  };
  [[nodiscard]] std::vector<double> seconds_of_rows(const std::vector<double>& compute_seconds) const;
  /// By which the slowest row would be faster if a rank took `usual` seconds. `rows`: seconds_of_rows().
  [[nodiscard]] double cost_of(int rank, double usual, const std::vector<double>& compute_seconds,
                               const std::vector<double>& rows) const;

  runtime::Grid grid_;
  int passes_;
  std::vector<Recent> recent_;  // by rank
  std::vector<Straggler> now_;
};

/// "straggler: rank 3 (stage 1, row 1) computes 1.52 times as long as its stage's median row, which costs 0.123 s a
/// step".
[[nodiscard]] std::string describe(const Straggler& straggler, const runtime::Grid& grid);

}  // namespace ranvier::actors
