#include "actors/watch/stragglers.hpp"

#include "actors/schedule/stage_split.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::actors {

Stragglers::Stragglers(const runtime::GridShape& grid, int passes)
    : grid_(grid, grid.ranks()), passes_(passes), recent_(static_cast<std::size_t>(grid.ranks())) {}

double Stragglers::seconds_of_row(int row, const std::vector<double>& compute_seconds) const {
  std::vector<double> stages;
  for (const int rank : grid_.pipeline(row)) stages.push_back(compute_seconds[static_cast<std::size_t>(rank)]);
  return row_seconds(stages, passes_);
}

double Stragglers::cost_of(int rank, double usual, std::vector<double> compute_seconds,
                           std::vector<double> rows) const {
  const double slowest = std::ranges::max(rows);
  const int row = grid_.position(rank).row;
  compute_seconds[static_cast<std::size_t>(rank)] = usual;
  rows[static_cast<std::size_t>(row)] = seconds_of_row(row, compute_seconds);
  return std::max(0.0, slowest - std::ranges::max(rows));
}

Stragglers::Change Stragglers::step(const std::vector<double>& compute_seconds) {
  Change change;
  if (grid_.shape().g_data == 1) return change;
  expect(compute_seconds.size() == recent_.size(), "compute times have the wrong number of ranks: {}, expected {}",
         compute_seconds.size(), recent_.size());
  std::vector<double> rows;
  for (int row = 0; row < grid_.shape().g_data; ++row) rows.push_back(seconds_of_row(row, compute_seconds));
  now_.clear();
  for (int stage = 0; stage < grid_.shape().g_inter; ++stage) {
    const std::vector<int> column = grid_.column(stage);
    std::vector<double> seconds;
    for (const int rank : column) seconds.push_back(compute_seconds[static_cast<std::size_t>(rank)]);
    const double usual = runtime::lower_median(std::move(seconds));
    for (const int rank : column) {
      const double took = compute_seconds[static_cast<std::size_t>(rank)];
      Recent& recent = recent_[static_cast<std::size_t>(rank)];
      const bool slow = usual > 0 && took > factor * usual;
      recent.slow = slow ? recent.slow + 1 : 0;
      recent.usual = slow ? 0 : recent.usual + 1;
      if (!recent.named && recent.slow == 0) recent.counted = 0;
      if (slow || recent.named) {
        const int counted = recent.counted = std::min(recent.counted + 1, steps);
        recent.times += ((usual > 0 ? took / usual : 1) - recent.times) / counted;
        recent.cost += (cost_of(rank, usual, compute_seconds, rows) - recent.cost) / counted;
      }
      const Straggler straggler{rank, recent.times, recent.cost};
      if (!recent.named && recent.slow >= steps) {
        recent.named = true;
        change.begin.push_back(straggler);
      } else if (recent.named && recent.usual >= steps_to_end) {
        recent.named = false;
        change.end.push_back(rank);
      }
      if (recent.named) now_.push_back(straggler);
    }
  }
  return change;
}

std::string describe(const Straggler& straggler, const runtime::Grid& grid) {
  const runtime::Position position = grid.position(straggler.rank);
  return fmt::format(
      "straggler: rank {} (stage {}, row {}) computes {:.2f} times as long as its stage's median row; "
      "cost {:.3g} s per step",
      straggler.rank, position.stage, position.row, straggler.times, straggler.seconds_per_step);
}

}  // namespace ranvier::actors
