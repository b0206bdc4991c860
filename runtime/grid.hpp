// Who is where: g_inter stages × g_data rows. A row is a pipeline, a column holds the replicas of one stage
// (Myelin §III-A, with i = stage and j = row). Ranks of a column are neighbours, rank = stage · g_data + row,
// so that a column's traffic stays inside a node where it can. Pure data; any thread.
#pragma once

#include <vector>

namespace ranvier::runtime {

struct GridShape {
  int g_inter = 1;  ///< pipeline stages
  int g_data = 1;   ///< rows, the data-parallel width of every stage

  [[nodiscard]] int ranks() const noexcept { return g_inter * g_data; }
};

struct Position {
  int stage = 0;
  int row = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

class Grid {
 public:
  /// Throws ErrorCode::usage unless both sizes are positive and their product is `ranks`.
  Grid(GridShape shape, int ranks);

  [[nodiscard]] const GridShape& shape() const noexcept { return shape_; }
  [[nodiscard]] Position position(int rank) const;
  [[nodiscard]] int rank(Position position) const;
  /// The ranks that hold `stage`, in row order.
  [[nodiscard]] std::vector<int> column(int stage) const;
  /// The ranks of pipeline `row`, in stage order.
  [[nodiscard]] std::vector<int> pipeline(int row) const;

 private:
  GridShape shape_;
};

}  // namespace ranvier::runtime
