// Defaults of jobs on GPUs: their precision, and the data sheet that MFU refers to.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Fixture : SmallText {
  [[nodiscard]] Outcome start(int ranks, const Flags& more, const std::string& gpu = "") const {
    const Flags flags = join("--layers 1 --device-memory 140MiB --products first --attention ranvier", more);
    return run(ranks, small_run(text, flags), 60s, {{"RANVIER_EMULATED_GPU", gpu}});
  }
  [[nodiscard]] std::string output(int ranks, const Flags& more, const std::string& gpu = "") const {
    return require_status(0, start(ranks, more, gpu)).output;
  }
  [[nodiscard]] std::vector<std::string> losses(const Flags& more, const std::string& gpu = "") const {
    std::filesystem::remove(metrics);
    static_cast<void>(output(1, join(more, "--metrics " + metrics), gpu));
    return metric(metrics, "loss");
  }

  std::string checkpoints = file("checkpoints");
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a GPU trains in bf16 by default, an older one in fp16, and a CPU in fp32") {
  const Flags gpu = "--device cuda";
  check_has(output(1, gpu), {"precision: bf16 (default of this GPU; --precision fp32 trains in single precision)"});
  CHECK(losses(gpu) == losses("--device cuda --precision bf16"));
  CHECK(losses(gpu) != losses("--device cuda --precision fp32"));
  check_has(output(1, gpu, "volta"), {"precision: fp16 (default of this GPU, which has no bf16; "});
  CHECK(losses(gpu, "volta") == losses("--device cuda --precision fp16"));
  check_lacks(output(1, "--device cuda --precision fp32"), {"precision: "});
  check_lacks(output(1, "--device cpu"), {"precision: "});
  CHECK(losses("--device cpu") == losses("--device cpu --precision fp32"));
}

TEST_CASE_FIXTURE(Fixture, "ranks with different GPUs train in a precision that all of them support") {
  const std::string mixed = output(2, "--device cuda --g-data 2", "volta=1");
  check_has(mixed, {"precision: fp16 (default of this GPU, which has no bf16; "});
}

TEST_CASE_FIXTURE(Fixture, "a dry run without a GPU plans for one with bf16, or for the GPUs of a profile") {
  const Flags dry = "--device cuda --world 2 --g-data 2 --dry-run";
  check_has(output(1, dry, "no-gpu"), {"precision: bf16 (default of this GPU; "});
  const Flags old = join("--profile v100-32g-p3dn", dry);
  check_has(output(1, old, "no-gpu"), {"precision: fp16 (default of v100-32g-p3dn; "});
}

TEST_CASE_FIXTURE(Fixture, "a run resumes in the precision of its checkpoint by default") {
  const auto run_from = [&](const std::string& folder, const std::string& device, Flags more = {}) {
    more.add(fmt::format("--device {} --lr-decay constant --checkpoint {}", device, folder));
    return start(1, more);
  };
  for (const auto& [first, precision, second] :
       {std::tuple{"cuda", "fp32", "cuda"}, {"cuda", "bf16", "cpu"}, {"cpu", "fp32", "cuda"}}) {
    CAPTURE_ALL(first, second);
    const std::string folder = checkpoints + first + second + precision;
    REQUIRE(run_from(folder, first, fmt::format("--steps 2 --precision {}", precision)).status == 0);
    const Outcome resumed = require_status(0, run_from(folder, second, "--resume auto"));
    check_has(resumed.output, {std::string("precision: ") + precision + " (from " + folder + "/step-00000002"});
    check_has(resumed.output, {"step 4/4"});
    check_lacks(resumed.output, {"--precision fp32 (was"});
    const Outcome named = run_from(folder, second, "--resume " + folder + " --steps 6 --precision fp16");
    CHECK(named.status != 0);
    check_has(named.output, {"--precision fp16 (was " + std::string(precision) + ")"});
  }
  // If the checkpoint has the device's default, the message is the same as in a new run.
  const std::string folder = checkpoints + "bf16";
  REQUIRE(run_from(folder, "cuda", "--steps 2").status == 0);
  check_has(run_from(folder, "cuda", "--resume " + folder).output, {"precision: bf16 (default of this GPU; "});
}

TEST_CASE_FIXTURE(Fixture, "MFU on a GPU is relative to its data sheet's rate in the precision of the run") {
  const auto rates = [&](int ranks, const Flags& more, const std::string& gpu) {
    std::filesystem::remove(metrics);
    const std::string printed = output(ranks, join(more, "--device cuda --metrics " + metrics), gpu);
    CHECK(metric(metrics, "measured_mfu").back() == "null");  // no memory for the large product
    if (metric(metrics, "mfu").back() == "null") {
      check_has(printed, {"  MFU      -  "});
      return 0.0;
    }
    check_has(printed, {"%  mem "});
    return std::stod(metric(metrics, "model_flops_per_second").back()) / std::stod(metric(metrics, "mfu").back());
  };
  const std::string a100 = "name=NVIDIA A100-SXM4-40GB";
  CHECK(rates(1, {}, a100) == doctest::Approx(3.12e14));
  CHECK(rates(1, "--precision fp32", a100) == doctest::Approx(1.95e13));
  CHECK(rates(2, "--g-data 2", a100) == doctest::Approx(3.12e14));  // both ranks have the same GPU
  CHECK(rates(1, {}, "name=NVIDIA A100-SXM4-40GB MIG 3g.20gb") == 0);
}
