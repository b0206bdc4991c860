// Comparison of jobs that must give the same bits.
#pragma once

#include "tests/actors/simulated_job.hpp"
#include "tests/effort.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// A skipped step's norm is an arbitrary result of the overflow.
void check_same_bits(const JobResult& a, const JobResult& b);

/// Seeds of `count` message orders, or as many as RANVIER_SEEDS=N requests, or the order of RANVIER_SEED=N only.
[[nodiscard]] std::vector<std::uint64_t> message_orders(int count);

/// Every name, and triples that have none.
inline constexpr std::array shardings{"ddp",      "zero1",  "zero2", "zero3", "mics", "paro-igg", "paro-iig",
                                      "paro-nig", "zero++", "GIN",   "IGN",   "NGI",  "GNN"};

/// A precision whose loss is scaled if half-precision numbers would underflow.
void set_precision(actors::TrainerOptions& options, runtime::DType compute);

/// Variants of the job by name: on a pipeline of three stages under every schedule, with few and with all activations
/// saved and with deferred weight gradients. Then on two stages of two chunks each. Some have recomputation, and states
/// in host memory.
[[nodiscard]] std::vector<std::pair<std::string, actors::TrainerOptions>> pipeline_orders(
    const actors::TrainerOptions& options);

/// The reference result. It is computed at the first request.
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

/// Checks that the same job gives the same bits, placed and partitioned by `options`, with messages in the order of the
/// seed. With every other seed, work on streams is late.
void check_trains_like(ReferenceJob& reference, const models::GptOptions& gpt,
                       const actors::TrainerOptions& options, std::uint64_t seed);

}  // namespace ranvier::tests
