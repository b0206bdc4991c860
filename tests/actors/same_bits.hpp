// Jobs that must have trained the same bits.
#pragma once

#include "tests/actors/simulated_job.hpp"
#include "tests/effort.hpp"

#include <array>
#include <optional>
#include <utility>

namespace ranvier::tests {

/// A skipped step's norm is whatever the overflow made of it.
void check_same_bits(const JobResult& a, const JobResult& b);

/// Every name, and triples that have none.
inline constexpr std::array shardings{"ddp",      "zero1",  "zero2", "zero3", "mics", "paro-igg", "paro-iig",
                                      "paro-nig", "zero++", "GIN",   "IGN",   "NGI",  "GNN"};

/// What others must train like. It runs once somebody asks.
class ReferenceJob {
 public:
  ReferenceJob(models::GptOptions gpt, actors::TrainerOptions options)
      : gpt_(std::move(gpt)), options_(std::move(options)) {}

  const JobResult& result();

 private:
  models::GptOptions gpt_;
  actors::TrainerOptions options_;
  std::optional<JobResult> result_;
};

/// The same job trains the same, placed and cut as `options` say, its messages in the order of the seed. Every other
/// seed's work on streams is late.
void check_trains_like(ReferenceJob& reference, const models::GptOptions& gpt,
                       const actors::TrainerOptions& options, std::uint64_t seed);

}  // namespace ranvier::tests
