// How a job ends whose parts cannot be torn down (held_up.cpp).
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE("an error is said, and the job ended, before anything is torn down") {
  // The other rank is in the middle of its step then, with receives posted, and patient.
  const Outcome outcome = run(2, small_run("unused", {"--g-inter", "2", "--steps", "1000000", "--timeout", "600"}),
                              60s, {{"RANVIER_FAULT", "1:3:throw"}});
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status == 70);  // as MPI_Abort() gave it to mpirun
  CHECK(outcome.output.find("ranvier-held-up: error: rank 1 (stage 1, row 0): fault injected at step 3") !=
        std::string::npos);
  CHECK(outcome.output.find("torn down") == std::string::npos);
}
