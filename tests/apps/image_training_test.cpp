// Complete runs of image models: data, validation, weights, resuming from a checkpoint, and refused flags.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Images : InFolder {
  std::string cifar = file("cifar");

  /// Two files of images whose shade is their class.
  Images() {
    std::filesystem::create_directory(cifar);
    for (const char* name : {"/data_batch_1.bin", "/data_batch_2.bin"}) {
      std::string content;
      for (int n = 0; n < 20; ++n) {
        content += static_cast<char>(n % 3);
        for (int i = 0; i < 3072; ++i) content += static_cast<char>(80 * (n % 3) + (i * 37 + n * 11) % 64);
      }
      std::ofstream(cifar + name, std::ios::binary) << content;
    }
  }

  [[nodiscard]] Outcome start(int ranks, const Flags& more) const {
    const bool has_steps = std::find(more.begin(), more.end(), "--steps") != more.end();
    const Flags common = "--threads 1 --batch-size 4 --microbatch-size 2 --learning-rate 0.01 --data " + cifar;
    return run(ranks, join(join(more, common), has_steps ? Flags{} : "--steps 4"), 60s);
  }
  [[nodiscard]] Outcome begin(int ranks, const Flags& more) const {
    return start(ranks,
                 join(more, {"--model", "wide-resnet", "--hidden", "4", "--classes", "3", "--blocks", "1,1,1,1"}));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Images,
                  "a residual network gives the same bits on two stages, is saved, and gives the same evaluation") {
  std::vector<std::string> losses;
  for (const int stages : {1, 2}) {
    CAPTURE(stages);
    const std::string metrics = file("metrics.jsonl");
    std::filesystem::remove(metrics);
    const Outcome outcome = require_status(
        0, begin(stages, {"--g-inter", std::to_string(stages), "--validation-split", "0.25", "--metrics", metrics,
                          "--save", file("saved"), "--augment", "on", "--overwrite"}));
    check_has(outcome.output, {"data: 40 images of 32 × 32, 10 of them for validation", "images/s"});
    check_lacks(outcome.output, {"perplexity"});
    if (losses.empty()) losses = metric(metrics, "loss");
    CHECK(losses.size() == 4);
    CHECK(metric(metrics, "loss") == losses);
    check_has(lines_of(read_file(metrics)).back(), {R"("validation_accuracy":)"});
    check_has(outcome.output, {"  accuracy "});
    // The saved model, with its config.json.
    const Outcome again =
        require_status(0, start(1, {"--init-from", file("saved"), "--eval-only", "--validation-split", "0.25"}));
    CHECK(validation_of(again) == validation_of(outcome));
    // Without it the sizes follow from the tensors.
    std::filesystem::remove(file("saved") + "/config.json");
    CHECK(start(1, {"--init-from", file("saved"), "--steps", "1"}).status == 0);
  }
}

TEST_CASE_FIXTURE(Images, "an image run resumes from a checkpoint as if it had not stopped") {
  const auto train = [&](int stages, const std::string& steps, const std::string& name, Flags more) {
    require_status(0, begin(stages, join(more, {"--g-inter", std::to_string(stages), "--steps", steps, "--lr-decay",
                                                "constant", "--metrics", file(name)})));
    return metric(file(name), "loss");
  };
  auto losses = train(1, "6", "whole.jsonl", {});
  train(1, "4", "first.jsonl", {"--checkpoint", file("kept")});
  losses.erase(losses.begin(), losses.begin() + 4);
  CHECK(train(2, "6", "rest.jsonl", {"--checkpoint", file("kept"), "--resume", "auto"}) == losses);
}

TEST_CASE_FIXTURE(Images, "images of another size, and adapters, are refused") {
  check_output(64, begin(1, {"--image-size", "224"}), {"use --image-size 32"});
  check_output(64, begin(1, {"--lora-rank", "2"}), {"do not support adapters"});
}
