// What the flags about sharding come to on the nodes of a run: how the columns are laid out, over which links.
// Pure; any thread; the same on all ranks.
#pragma once

#include "actors/exchange/algorithm_choice.hpp"
#include "apps/train/options/train_options.hpp"

#include <span>
#include <vector>

namespace ranvier::apps {

struct ShardSetting {
  std::vector<int> node_of;      ///< [rank]
  std::vector<int> node_of_row;  ///< as all columns are laid out
  int group_size = 1;
  collectives::Links links;
};

/// `asked_nodes` is what MPI answered; a job that --world imagines needs none.
[[nodiscard]] ShardSetting resolve_sharding(const TrainOptions& options, std::span<const int> asked_nodes);

}  // namespace ranvier::apps
