#include "runtime/base/grid.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstdint>

namespace ranvier::runtime {

GridShape complete_grid(GridShape shape, int ranks, std::string_view start) {
  const int g_inter = shape.g_inter;
  if (shape.g_data == 0) {
    if (ranks % g_inter != 0)
      fail(ErrorCode::usage,
           "`g_inter` {} does not divide the number of ranks, {}; use a divisor, or a multiple of {} ranks",
           g_inter, ranks, g_inter);
    shape.g_data = ranks / g_inter;
  }
  const auto wanted = std::int64_t{g_inter} * shape.g_data;
  if (wanted != ranks)
    fail(ErrorCode::usage,
         "`g_inter` {} x `g_data` {} needs {} ranks, but the job has {}; use {} {} or another grid", g_inter,
         shape.g_data, wanted, ranks, start, wanted);
  return shape;
}

std::optional<std::string> batch_problem(int batch_size, int g_data) {
  if (batch_size >= 1 && batch_size % g_data == 0) return std::nullopt;
  return fmt::format("`batch_size` {} is not divisible by `g_data` {}; use a multiple, such as {}", batch_size,
                     g_data, (std::max(batch_size, 0) / g_data + 1) * std::int64_t{g_data});
}

Grid::Grid(GridShape shape, int ranks) : shape_(shape) {
  if (shape.g_inter < 1) fail(ErrorCode::usage, "`g_inter` {} must be at least 1", shape.g_inter);
  if (shape.g_data < 1) fail(ErrorCode::usage, "`g_data` {} must be at least 1", shape.g_data);
  static_cast<void>(complete_grid(shape, ranks));
}

Position Grid::position(int rank) const {
  expect(rank >= 0 && rank < shape_.ranks(), "rank {} of a grid of {}", rank, shape_.ranks());
  return {rank / shape_.g_data, rank % shape_.g_data};
}

int Grid::rank(Position position) const {
  expect(
      position.stage >= 0 && position.stage < shape_.g_inter && position.row >= 0 && position.row < shape_.g_data,
      "stage {}, row {} of a grid of {} × {}", position.stage, position.row, shape_.g_inter, shape_.g_data);
  return position.stage * shape_.g_data + position.row;
}

std::vector<int> Grid::column(int stage) const {
  std::vector<int> ranks;
  for (int row = 0; row < shape_.g_data; ++row) ranks.push_back(rank({stage, row}));
  return ranks;
}

std::vector<int> Grid::pipeline(int row) const {
  std::vector<int> ranks;
  for (int stage = 0; stage < shape_.g_inter; ++stage) ranks.push_back(rank({stage, row}));
  return ranks;
}

}  // namespace ranvier::runtime
