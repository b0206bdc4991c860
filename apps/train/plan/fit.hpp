// Whether a planned job fits into what its ranks have, what is largest, and which flags would make it fit: each of them
// is tried by planning the job with it, not guessed. Pure; any thread; the same on all ranks that are given the same.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "models/architecture.hpp"
#include "models/sample_source.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// The plan of one rank of each stage; ranks of a column are alike. Throws ErrorCode::usage as plan_rank() does. The
/// architecture outlives the plans.
[[nodiscard]] std::vector<actors::RankPlan> plan_stages(const models::Architecture& architecture,
                                                        const models::SampleBytes& sample,
                                                        const actors::TrainerOptions& options);

/// What there is; none: not known, as of a cluster that is imagined.
struct Room {
  std::optional<std::size_t> device_bytes;  ///< of a rank
  std::optional<std::size_t> host_bytes;    ///< of a node, for all its ranks
  std::optional<std::size_t> disk_bytes;    ///< of a node, where states live in files
  bool device_is_host = false;              ///< what a rank's device takes comes out of its node's memory
  bool may_change_prefetch = true;          ///< nobody asked for a certain --prefetch
};

struct Verdict {
  bool fits = true;
  std::string text;  ///< lines for people, each ended
};

[[nodiscard]] Verdict verdict(const models::Architecture& architecture, const models::SampleBytes& sample,
                              const actors::TrainerOptions& options, std::span<const actors::RankPlan> stages,
                              const Room& room);

}  // namespace ranvier::apps
