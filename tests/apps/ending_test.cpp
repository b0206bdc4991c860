// The end of a job whose objects cannot be destroyed (held_up.cpp).
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE("an error is printed, and the job ended, before any object is destroyed") {
  // At that time the other rank is in the middle of its step, with posted receives, and keeps waiting.
  const Outcome outcome = require_status(
      70, run(2, small_run("unused", {"--g-inter", "2", "--steps", "1000000", "--timeout", "600"}), 60s,
              {{"RANVIER_FAULT", "1:3:throw"}}));  // the status that MPI_Abort() passed to mpirun
  check_has(outcome.output, {"ranvier-held-up: error: rank 1 (stage 1, row 0): fault injected at step 3"});
  check_lacks(outcome.output, {"torn down"});
}
