// Text generation on the emulated GPU.
#include "tests/apps/generated.hpp"
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(SmallText, "a GPU generates the text that the cpu device generates") {
  const std::string model = file("model");
  require_status(0, run(1, small_run(text, {"--save", model, "--steps", "30", "--learning-rate", "1e-2"}), 60s));
  const auto generate = [&](const std::string& device, const std::string& more) {
    const Generated result = run_generator(
        RANVIER_GENERATOR,
        "--weights " + model + " --prompt the --tokens 12 --precision fp32 --device " + device + " " + more,
        folder);
    INFO(result.report);
    REQUIRE(result.status == 0);
    return result.text;
  };
  for (const std::string way : {"--temperature 0", "--temperature 0.7 --top-k 20 --seed 5 --num-samples 2"}) {
    CAPTURE(way);
    const std::string on_gpu = generate("cuda", way);
    CHECK(on_gpu.size() > 12);
    CHECK(on_gpu == generate("cpu", way));
  }
}

TEST_CASE_FIXTURE(SmallText, "a GPU generates text in bf16 by default") {
  const std::string model = file("model");
  REQUIRE(run(1, small_run(text, {"--save", model, "--steps", "1"}), 60s).status == 0);
  const auto report = [&](const std::string& more) {
    return run_generator(RANVIER_GENERATOR, "--weights " + model + " --prompt the --tokens 2 " + more, folder)
        .report;
  };
  check_has(report("--device cuda"), {" parameters in bf16, "});
  check_has(report("--device cuda --precision fp16"), {" parameters in fp16, "});
  check_has(report("--device cpu"), {" parameters in fp32, "});
}
