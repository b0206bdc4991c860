// Jobs that must have trained the same bits.
#pragma once

#include "tests/actors/simulated_job.hpp"
#include "tests/effort.hpp"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <utility>

namespace ranvier::tests {

/// A skipped step's norm is whatever the overflow made of it.
inline void check_same_bits(const JobResult& a, const JobResult& b) {
  REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    CHECK(a.steps[s].loss == b.steps[s].loss);
    CHECK(a.steps[s].skipped == b.steps[s].skipped);
    CHECK((a.steps[s].gradient_norm == b.steps[s].gradient_norm || a.steps[s].skipped));
  }
  CHECK(a.evaluations == b.evaluations);
  CHECK(a.accuracies == b.accuracies);
  CHECK(a.texts == b.texts);
  CHECK(a.weights == b.weights);
}

/// Every name, and triples that have none.
inline constexpr std::array shardings{"ddp",      "zero1",    "zero2",  "zero3", "mics", "paro-igg", "paro-iig",
                                      "paro-nig", "zero++", "GIN",   "IGN",  "NGI",      "GNN"};

/// What others must train like. It runs once somebody asks.
class ReferenceJob {
 public:
  ReferenceJob(models::GptOptions gpt, actors::TrainerOptions options)
      : gpt_(std::move(gpt)), options_(std::move(options)) {}

  const JobResult& result() {
    if (!result_) result_ = run_simulated(gpt_, options_, 1);
    return *result_;
  }

 private:
  models::GptOptions gpt_;
  actors::TrainerOptions options_;
  std::optional<JobResult> result_;
};

/// The same job trains the same, placed and cut as `options` say, its messages in the order of the seed. Every other
/// seed's work on streams is late.
inline void check_trains_like(ReferenceJob& reference, const models::GptOptions& gpt,
                              const actors::TrainerOptions& options, std::uint64_t seed) {
  CAPTURE(seed);
  const auto devices = seed % 2 == 0 ? Devices::inline_ : Devices::delayed;
  check_same_bits(reference.result(), run_simulated(gpt, options, seed, {}, 1 << 20, devices));
}

}  // namespace ranvier::tests
