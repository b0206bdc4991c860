// Times collectives, by plans and by MPI in turns. Loop thread only.
#pragma once

#include "apps/bench/bench_options.hpp"
#include "apps/bench/bench_rank.hpp"
#include "collectives/plans/link_file.hpp"

#include <optional>
#include <span>

namespace ranvier::apps {

/// Collective. Rank 0 prints one JSON line per case, and on stderr the cases skipped because of `options.seconds`.
/// `links` give the predicted seconds.
void time_collectives(BenchRank& rank, const BenchOptions& options, std::span<const int> node_of,
                      const std::optional<collectives::Links>& links);

}  // namespace ranvier::apps
