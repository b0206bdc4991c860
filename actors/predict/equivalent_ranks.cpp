#include "actors/predict/equivalent_ranks.hpp"

#include "actors/rank/rank_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ranvier::actors {

namespace {

/// Returns whether blocks of `rows` rows occupy separate nodes, distributed identically, in each stage.
bool fill_nodes_alike(const runtime::GridShape& grid, int rows, std::span<const int> nodes) {
  std::map<int, int> block_of_node;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int block = rank / rows;  // numbered over all stages; a stage consists of complete blocks
    if (block_of_node.try_emplace(nodes[static_cast<std::size_t>(rank)], block).first->second != block)
      return false;
  }
  const auto begins_node = [&](int rank) {
    return rank % rows == 0 || nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(rank - 1)];
  };
  std::size_t begun = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int first_block = rank / grid.g_data * grid.g_data;
    if (begins_node(rank) != begins_node(first_block + (rank - first_block) % rows)) return false;
    if (begins_node(rank)) ++begun;
  }
  return begun == block_of_node.size();  // otherwise ranks of a node are not consecutive
}

}  // namespace

int distinct_rows(const TrainerOptions& options, std::span<const int> nodes) {
  const runtime::GridShape& grid = options.grid;
  const int group = column_shape(options).group_size;
  for (int rows = 1; rows < grid.g_data; ++rows) {
    if (grid.g_data % rows != 0 || (group % rows != 0 && rows % group != 0)) continue;
    if (fill_nodes_alike(grid, rows, nodes)) return rows;
  }
  return grid.g_data;
}

int EquivalentRanks::simulated(int rank) const {
  runtime::Position position = grid_.position(rank);
  position.row %= rows_;
  return grid_.rank(position);
}

std::vector<int> EquivalentRanks::others(int rank) const {
  std::vector<int> all;
  runtime::Position position = grid_.position(rank);
  for (position.row += rows_; position.row < grid_.shape().g_data; position.row += rows_)
    all.push_back(grid_.rank(position));
  return all;
}

std::vector<bool> EquivalentRanks::absent() const {
  std::vector<bool> all;
  for (int rank = 0; rank < grid_.shape().ranks(); ++rank) all.push_back(simulated(rank) != rank);
  return all;
}

EquivalentConsensus::EquivalentConsensus(runtime::EventLoop& loop, runtime::Transport& transport,
                                         const std::vector<Equivalent>& equivalent)
    : Consensus(loop, transport), loop_(&loop) {
  for (const Equivalent& twin : equivalent)
    others_.push_back({&twin.loop, std::make_unique<Consensus>(twin.loop, twin.transport, staging_)});
}

void EquivalentConsensus::agree(std::vector<double>& values, runtime::Handler done) {
  values_.assign(values.size(), 0.0);
  missing_ = 1 + others_.size();
  done_ = std::move(done);
  for (const Other& other : others_)
    other.loop->post([this, &other] { other.consensus->agree(values_, [this] { one_done(false); }); });
  Consensus::agree(values, [this] { one_done(true); });
}

void EquivalentConsensus::one_done(bool mine) {
  if (--missing_ > 0) return;
  if (mine) return std::exchange(done_, nullptr)();
  loop_->post(std::exchange(done_, nullptr));
}

}  // namespace ranvier::actors
