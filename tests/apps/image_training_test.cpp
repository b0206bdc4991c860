// Complete runs of image models: data, validation, weights, resuming from a checkpoint, and refused flags.
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Images {
  TemporaryFolder folder;
  std::string cifar = (folder.path() / "cifar").string();

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

  [[nodiscard]] std::string file(const std::string& name) const { return (folder.path() / name).string(); }

  [[nodiscard]] Outcome start(int ranks, const Flags& more, const std::string& data = {}) const {
    Flags flags = more;
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--data", data.empty() ? cifar : data},
                                      {"--steps", "4"},
                                      {"--threads", "1"},
                                      {"--batch-size", "4"},
                                      {"--microbatch-size", "2"},
                                      {"--learning-rate", "0.01"}}) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) flags.insert(flags.end(), {flag, value});
    }
    return run(ranks, flags, 60s);
  }
  [[nodiscard]] Outcome begin(int ranks, const Flags& more) const {
    Flags flags = more;
    flags.insert(flags.end(), {"--model", "wide-resnet", "--hidden", "4", "--classes", "3"});
    if (std::find(more.begin(), more.end(), "--blocks") == more.end())
      flags.insert(flags.end(), {"--blocks", "1,1,1,1"});
    return start(ranks, flags);
  }
};

bool has(const Outcome& outcome, const std::string& words) {
  return outcome.output.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(Images,
                  "a residual network gives the same bits on two stages, is saved, and gives the same evaluation") {
  std::vector<std::string> losses;
  for (const int stages : {1, 2}) {
    CAPTURE(stages);
    const std::string metrics = file("metrics.jsonl");
    std::filesystem::remove(metrics);
    const Outcome outcome =
        begin(stages, {"--g-inter", std::to_string(stages), "--validation-split", "0.25", "--metrics", metrics,
                       "--save", file("saved"), "--augment", "on", "--overwrite"});
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
    CHECK(has(outcome, "data: 40 images of 32 × 32, 10 of them for validation"));
    CHECK(has(outcome, "images/s"));
    CHECK_FALSE(has(outcome, "perplexity"));
    if (losses.empty()) losses = metric(metrics, "loss");
    CHECK(losses.size() == 4);
    CHECK(metric(metrics, "loss") == losses);
    CHECK(lines_of(read_file(metrics)).back().find(R"("validation_accuracy":)") != std::string::npos);
    CHECK(has(outcome, "  accuracy "));
    // The saved model, with its config.json.
    const Outcome again = start(1, {"--init-from", file("saved"), "--eval-only", "--validation-split", "0.25"});
    INFO(again.output);
    CHECK(again.status == 0);
    const auto of = [](const Outcome& one) {
      const auto place = one.output.find("validation loss ");
      return place == std::string::npos ? std::string("none")
                                        : one.output.substr(place, one.output.find("  over", place) - place);
    };
    CHECK(of(again) == of(outcome));
    // Without it the sizes follow from the tensors.
    std::filesystem::remove(file("saved") + "/config.json");
    CHECK(start(1, {"--init-from", file("saved"), "--steps", "1"}).status == 0);
  }
}

TEST_CASE_FIXTURE(Images, "an image run resumes from a checkpoint as if it had not stopped") {
  const auto train = [&](int stages, const std::string& steps, const std::string& name, Flags more) {
    const std::string metrics = file(name);
    more.insert(more.end(), {"--g-inter", std::to_string(stages), "--steps", steps, "--lr-decay", "constant",
                             "--metrics", metrics});
    const Outcome outcome = begin(stages, more);
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
    std::vector<std::string> losses;  // the first line of a run with checkpoints has none
    for (const std::string& line : lines_of(read_file(metrics))) {
      const auto place = line.find("\"loss\":");
      if (place != std::string::npos) losses.push_back(line.substr(place, line.find(',', place) - place));
    }
    return losses;
  };
  auto losses = train(1, "6", "whole.jsonl", {});
  train(1, "4", "first.jsonl", {"--checkpoint", file("kept")});
  losses.erase(losses.begin(), losses.begin() + 4);
  CHECK(train(2, "6", "rest.jsonl", {"--checkpoint", file("kept"), "--resume", "auto"}) == losses);
}

TEST_CASE_FIXTURE(Images, "flags of text models are refused for image models by name, and so are other sizes") {
  const auto refused = [&](const Outcome& outcome, const std::string& words) {
    INFO(outcome.output);
    CHECK(outcome.status == 64);
    CHECK(has(outcome, words));
  };
  refused(begin(1, {"--tokenizer", "bytes"}), "--tokenizer is for text, but --model wide-resnet");
  refused(begin(1, {"--sequence-length", "32"}), "--sequence-length");
  refused(begin(1, {"--blocks", "1,2"}), "four numbers above 0, as in 3,4,6,3");
  refused(begin(1, {"--g-inter", "7"}), "--g-inter 7");
  refused(begin(1, {"--image-size", "224"}), "use --image-size 32");
  refused(begin(1, {"--lora-rank", "2"}), "do not support adapters");
  refused(start(1, {"--augment", "on"}, "synthetic"), "--augment is for images, but --model gpt");
  refused(start(1, {"--blocks", "1,1,1,1"}, "synthetic"), "--model gpt has no block groups");
}
