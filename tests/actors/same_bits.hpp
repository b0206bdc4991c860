// Two jobs that must have trained the same bits.
#pragma once

#include "tests/actors/simulated_job.hpp"

#include <doctest/doctest.h>

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
  CHECK(a.weights == b.weights);
}

}  // namespace ranvier::tests
