// Complete runs of masked language models: their training data, their output, and refused flags.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Masked : SmallText {
  /// A BERT of bytes, whose mask is the next token after them.
  [[nodiscard]] Outcome start(int ranks, const Flags& more, const std::string& data = {}) const {
    return run(ranks, small_run(data.empty() ? text : data, join("--model bert --vocab-size 257", more)), 60s);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Masked,
                  "a BERT gives the same bits on two stages, and is validated with the same masks on every grid") {
  std::vector<std::string> losses, evaluations;
  for (const int stages : {1, 2}) {
    CAPTURE(stages);
    std::filesystem::remove(metrics);
    const Outcome outcome = require_status(
        0, start(stages, fmt::format("--g-inter {} --dropout 0.1 --eval-every 4 --metrics {} --save {}", stages,
                                     metrics, file("bert"))));
    check_has(outcome.output, {"masked per sample: 2 of 16 tokens; mask token: 256"});
    check_lacks(outcome.output, {"per byte"});
    CHECK(metric(metrics, "tokens").back() == "64");
    if (losses.empty()) losses = metric(metrics, "loss");
    CHECK(metric(metrics, "loss") == losses);
    const std::string last = lines_of(read_file(metrics)).back();
    const auto place = last.find("\"validation_loss\":");
    REQUIRE(place != std::string::npos);
    evaluations.push_back(last.substr(place, last.find(',', place) - place));
    CHECK(evaluations.back() == evaluations.front());
  }
  // The same weights are evaluated with the same masks.
  const Outcome again =
      require_status(0, run(1,
                            "--init-from " + file("bert") + " --data " + text +
                                " --eval-only --validation-split 0.1 --sequence-length 16 --threads 1",
                            60s));
  const auto number = evaluations.front().substr(evaluations.front().find(':') + 1, 6);
  check_has(again.output, {"validation loss " + number});
}

TEST_CASE_FIXTURE(Masked, "without a mask token a BERT prints the flag that names one") {
  check_output(64, start(1, "--vocab-size 256"), {"--mask-token is missing: all tokens of the model are bytes"});
  const std::string tokens = folder.write("tokens.bin", token_file(std::vector<std::uint16_t>(100, 7))).string();
  check_output(64, start(1, {}, tokens), {"--mask-token is missing: the data are tokens"});
  check_output(0, start(1, "--mask-token 5", tokens), {"mask token: 5"});
}

TEST_CASE_FIXTURE(Masked, "documents of a BERT are masked or padded, and give the same bits on every grid") {
  std::string lines;
  for (int i = 0; i < 90; ++i)
    lines += "{\"text\": \"" + std::string(static_cast<std::size_t>(1 + i % 20), 'a' + i % 7) + "\"}\n";
  const std::string data = folder.write("lines.jsonl", lines).string();
  std::vector<std::string> kinds;
  for (const char* documents : {"join", "mask", "pad"}) {
    CAPTURE(documents);
    const auto train = [&](int ranks, const Flags& more) {
      std::filesystem::remove(metrics);
      const Outcome outcome = require_status(
          0, start(ranks,
                   join(fmt::format("--documents {} --metrics {} --save {} --validation-split 0.2 --eval-every 1",
                                    documents, metrics, weights),
                        more),
                   data));
      CHECK(has(outcome.output,
                "% of all positions are padding; split at --sequence-length 16: 20 of 90 documents") ==
            (documents[0] == 'p'));
      CHECK(has(outcome.output, "masked per sample: 15% of its tokens, at most 2") == (documents[0] == 'p'));
      auto result = metric(metrics, "loss");
      result.push_back(metric(metrics, "validation_loss").back());
      result.push_back(read_file(weights));
      return result;
    };
    const auto reference = train(1, {});
    kinds.push_back(reference.back());
    if (documents[0] == 'j') continue;
    CHECK((train(3, "--g-inter 3 --recompute 1 --policy 1f1b") == reference));
    CHECK((train(1, "--offload infinity-cpu --recompute 2 --policy gpipe") == reference));
  }
  CHECK(kinds[0] != kinds[1]);
  CHECK(kinds[1] != kinds[2]);
}
