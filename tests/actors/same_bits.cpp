#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

namespace ranvier::tests {

void check_same_bits(const JobResult& a, const JobResult& b) {
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

const JobResult& ReferenceJob::result() {
  if (!result_) result_ = run_simulated(gpt_, options_, 1);
  return *result_;
}

void check_trains_like(ReferenceJob& reference, const models::GptOptions& gpt,
                       const actors::TrainerOptions& options, std::uint64_t seed) {
  CAPTURE(seed);
  const auto devices = seed % 2 == 0 ? Devices::inline_ : Devices::delayed;
  check_same_bits(reference.result(), run_simulated(gpt, options, seed, {}, 1 << 20, devices));
}

}  // namespace ranvier::tests
