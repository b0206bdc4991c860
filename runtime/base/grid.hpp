// Grid of ranks: g_inter stages × g_data rows. A row is a pipeline; a column is the data-parallel group of a stage
// (Myelin §III-A, with i = stage and j = row). Ranks of a column are consecutive, rank = stage · g_data + row, so
// that a column's traffic stays inside a node if possible. Plain data; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

struct GridShape {
  int g_inter = 1;  ///< pipeline stages
  int g_data = 1;   ///< number of rows: data-parallel width of every stage

  [[nodiscard]] int ranks() const noexcept { return g_inter * g_data; }
};

struct Position {
  int stage = 0;
  int row = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

/// `shape` (g_inter at least 1) with g_data = ranks / g_inter if it is 0. Throws ErrorCode::usage unless the product is
/// `ranks`. `start`: command or flag that sets the number of ranks, for the remedy.
[[nodiscard]] GridShape complete_grid(GridShape shape, int ranks, std::string_view start = "mpirun -n");

/// Problem of a batch that g_data rows (at least 1) cannot share equally, with a remedy. None if they can.
[[nodiscard]] std::optional<std::string> batch_problem(int batch_size, int g_data);

class Grid {
 public:
  /// Throws ErrorCode::usage unless both sizes are positive and their product is `ranks`.
  Grid(GridShape shape, int ranks);

  [[nodiscard]] const GridShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Position position(int rank) const;
  [[nodiscard]] int rank(Position position) const;
  /// Ranks that hold `stage`, in row order.
  [[nodiscard]] std::vector<int> column(int stage) const;
  /// Ranks of pipeline `row`, in stage order.
  [[nodiscard]] std::vector<int> pipeline(int row) const;

 private:
  GridShape shape_;
};

}  // namespace ranvier::runtime
