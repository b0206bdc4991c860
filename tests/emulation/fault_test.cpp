// Messages about a GPU that is missing, too old, too small, or failing: one message and the end of all ranks.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Fixture : SmallText {
  [[nodiscard]] Outcome train(int ranks, const std::string& gpu, const Flags& more = {}) const {
    return run(ranks, small_run(text, join("--device cuda --products first", more)), 60s,
               {{"RANVIER_EMULATED_GPU", gpu}});
  }
};

/// Checks the exit status, and that the output has each of these words once.
void check_ended(const Outcome& outcome, int status, std::initializer_list<std::string_view> once) {
  INFO(outcome.output);
  CHECK(outcome.status == status);
  CHECK_FALSE(outcome.timed_out);
  for (const std::string_view words : once) {
    CAPTURE(words);
    CHECK(count_of(outcome.output, words) == 1);
  }
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a missing GPU, a missing driver and an old driver have separate messages, each with a remedy") {
  for (const auto& [gpu, says] :
       {std::pair{"no-gpu", "no GPU is visible to this process"},
        {"no-driver", "this machine has no NVIDIA driver"},
        {"old-driver", "the NVIDIA driver supports CUDA 11.8, but this build needs CUDA"}}) {
    CAPTURE(gpu);
    check_ended(train(2, gpu, "--g-inter 2"), 72, {says});
  }
  CHECK(count_of(train(1, "no-gpu").output, "--device cpu") == 1);
}

TEST_CASE_FIXTURE(Fixture, "a GPU number that this machine lacks is refused with the existing numbers") {
  check_ended(train(1, "", "--device cuda:3"), 72, {"cuda:3: this process sees 1 GPU, numbered from 0"});
}

TEST_CASE_FIXTURE(Fixture, "a GPU with too little memory is refused with the memory that the run needs") {
  check_ended(train(1, "memory=1500000000", "--hidden 256 --layers 60"), 71,
              {"the plan needs ", "make the job fit (planned):"});
}

TEST_CASE_FIXTURE(Fixture,
                  "products that cuBLASLt fails to compute do not end a run, unless the GPU stops working") {
  const auto train = [&](const char* fails) {
    const Flags flags = "--device cuda --precision bf16 --attention ranvier --device-memory 140MiB";
    return run(1, small_run(text, flags), 60s, {{"EMULATED_CUBLAS_LT", fails}});
  };
  const Outcome without_it = train("2:2");
  INFO(without_it.output);
  CHECK(without_it.status == 0);
  CHECK(count_of(without_it.output,
                 "cublasLtMatmul: refused by the emulated cuBLASLt; another algorithm or a built-in") >= 1);
  check_ended(train("gpu"), 72, {"an illegal memory access was encountered"});
}

TEST_CASE_FIXTURE(Fixture, "a kernel that fails ends all ranks with one message that names rank, GPU and error") {
  const Outcome outcome = train(4, "fail=2:300", "--g-inter 2 --g-data 2 --device-memory 140MiB");
  CHECK(outcome.seconds < 30);
  check_has(outcome.output, {"rank 2"});
  check_ended(
      outcome, 72,
      {"an illegal memory access was encountered (cudaErrorIllegalAddress)", "cuda:0: ", "compute-sanitizer"});
}

TEST_CASE_FIXTURE(Fixture, "a kernel that fails while kernels are measured ends the run before training") {
  const Outcome outcome = train(1, "fail=0:200", "--precision bf16 --products measured --device-memory 140MiB");
  INFO(outcome.output);
  CHECK(outcome.status != 0);
  CHECK_FALSE(outcome.timed_out);
  CHECK(count_of(outcome.output, "an illegal memory access was encountered (cudaErrorIllegalAddress)") == 1);
}
