// The end of a job whose objects cannot be destroyed (held_up.cpp).
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE("an error is printed, and the job ended, before any object is destroyed") {
  // At that time the other rank is in the middle of its step, with posted receives, and keeps waiting.
  const Outcome outcome = run(2, small_run("unused", {"--g-inter", "2", "--steps", "1000000", "--timeout", "600"}),
                              60s, {{"RANVIER_FAULT", "1:3:throw"}});
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status == 70);  // the status that MPI_Abort() passed to mpirun
  CHECK(outcome.output.find("ranvier-held-up: error: rank 1 (stage 1, row 0): fault injected at step 3") !=
        std::string::npos);
  CHECK(outcome.output.find("torn down") == std::string::npos);
}
