#include "runtime/base/grid.hpp"

#include "runtime/base/error.hpp"

namespace ranvier::runtime {

Grid::Grid(GridShape shape, int ranks) : shape_(shape) {
  if (shape.g_inter < 1) fail(ErrorCode::usage, "`g_inter` {} must be at least 1", shape.g_inter);
  if (shape.g_data < 1) fail(ErrorCode::usage, "`g_data` {} must be at least 1", shape.g_data);
  const long long product = static_cast<long long>(shape.g_inter) * shape.g_data;
  if (product != ranks)
    fail(ErrorCode::usage,
         "`g_inter` {} × `g_data` {} is a grid of {} ranks, but {} were started; use mpirun -n {}, or a grid whose "
         "product is {}",
         shape.g_inter, shape.g_data, product, ranks, product, ranks);
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
