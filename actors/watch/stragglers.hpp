// Finds ranks that compute persistently slower than the same stage's ranks in other rows, and their cost per step. One
// thread at a time.
#pragma once

#include "runtime/base/grid.hpp"

#include <string>
#include <vector>

namespace ranvier::actors {

struct Straggler {
  int rank = 0;
  double times = 1;             ///< compute time relative to the median of the stage's rows
  double seconds_per_step = 0;  ///< step time saved if the rank took that median
};

class Stragglers {
 public:
  static constexpr double factor = 1.2;   ///< compute time relative to the median above which a step is slow
  static constexpr int steps = 20;        ///< slow steps in a row that make a rank a straggler
  static constexpr int steps_to_end = 5;  ///< steps in a row that are not slow and end it

  struct Change {
    std::vector<Straggler> begin;  ///< new stragglers
    std::vector<int> end;          ///< ranks that are no longer stragglers
  };

  /// `passes`: forward passes of a rank per step (microbatches of a row times model chunks per rank). The slowest stage
  /// waits for one pass of every other stage.
  Stragglers(const runtime::GridShape& grid, int passes);

  /// `compute_seconds`: compute time of the step's passes by rank. With two rows the slower rank is compared with the
  /// faster one; with one row there are no stragglers.
  Change step(const std::vector<double>& compute_seconds);

  /// Current stragglers by stage and row; values are means over about the last `steps` steps.
  [[nodiscard]] const std::vector<Straggler>& now() const noexcept { return now_; }

 private:
  struct Recent {
    int slow = 0, usual = 0;  // steps in a row
    bool named = false;
    double times = 0, cost = 0;  // means
    int counted = 0;             // steps in the means
  };
  [[nodiscard]] double seconds_of_row(int row, const std::vector<double>& compute_seconds) const;
  /// Time saved in the slowest row if `rank` took `usual` seconds. `rows`: seconds_of_row() by row.
  [[nodiscard]] double cost_of(int rank, double usual, std::vector<double> compute_seconds,
                               std::vector<double> rows) const;

  runtime::Grid grid_;
  int passes_;
  std::vector<Recent> recent_;  // by rank
  std::vector<Straggler> now_;
};

/// "straggler: rank 3 (stage 1, row 1) computes 1.52 times as long as its stage's median row; cost 0.123 s per step".
[[nodiscard]] std::string describe(const Straggler& straggler, const runtime::Grid& grid);

}  // namespace ranvier::actors
