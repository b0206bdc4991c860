// Whether a planned job fits into what its ranks have, what is largest, and which flags would make it fit: each of
// them is tried by planning the job with it, not guessed. Pure; any thread; the same on all ranks that are given
// the same.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/train/plan/room.hpp"
#include "models/architecture.hpp"
#include "models/sample_source.hpp"

#include <span>
#include <string>

namespace ranvier::apps {

struct Verdict {
  bool fits = true;
  std::string text;  ///< lines for people, each ended
};

[[nodiscard]] Verdict verdict(const models::Architecture& architecture, const models::SampleBytes& sample,
                              const actors::TrainerOptions& options, std::span<const actors::RankPlan> stages,
                              const Room& room);

}  // namespace ranvier::apps
