// Complete runs of masked language models: their training data, their output, and refused flags.
#include "tests/apps/compared_runs.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// A BERT of bytes, whose mask is the next token after them.
const Flags bert = "--model bert --vocab-size 257";

}  // namespace

TEST_CASE_FIXTURE(ComparedRuns,
                  "a BERT gives the same bits on two stages, and is validated with the same masks on every grid") {
  const TrainedRun trained = check_unchanged(1, join(bert, "--dropout 0.1 --eval-every 4"), {{"--g-inter 2", 2}});
  check_has(trained.output, {"masked per sample: 2 of 16 tokens; mask token: 256"});
  check_lacks(trained.output, {"per byte"});
  CHECK(metric(metrics, "tokens").back() == "64");
  // The same weights are evaluated with the same masks.
  const std::string evaluated = "--init-from " + saved + " --data " + text +
                                " --eval-only --validation-split 0.1 --sequence-length 16 --threads 1";
  const auto number = trained.evaluation.substr(std::string_view(R"("validation_loss":)").size(), 6);
  check_output(0, run(1, evaluated, 60s), {"validation loss " + number});
}

TEST_CASE_FIXTURE(ComparedRuns, "without a mask token a BERT prints the flag that names one") {
  const auto start = [&](const Flags& more) { return run(1, small_run(text, join(bert, more)), 60s); };
  const std::string tokens = folder.write("tokens.bin", token_file(std::vector<std::uint16_t>(100, 7))).string();
  check_output(64, start("--vocab-size 256"), {"--mask-token is missing: all tokens of the model are bytes"});
  check_output(64, start("--data " + tokens), {"--mask-token is missing: the data are tokens"});
  check_output(0, start("--mask-token 5 --data " + tokens), {"mask token: 5"});
}

TEST_CASE_FIXTURE(ComparedRuns, "documents of a BERT are masked or padded, and give the same bits on every grid") {
  std::string lines;
  for (int i = 0; i < 90; ++i)
    lines += "{\"text\": \"" + std::string(static_cast<std::size_t>(1 + i % 20), 'a' + i % 7) + "\"}\n";
  const Flags data =
      join(bert, "--validation-split 0.2 --eval-every 1 --data " + folder.write("lines.jsonl", lines).string());
  const std::vector<Change> changes{{"--g-inter 3 --recompute 1 --policy 1f1b", 3},
                                    {"--offload infinity-cpu --recompute 2 --policy gpipe"}};
  const auto joined = train(1, join(data, "--documents join"));
  const auto masked = check_unchanged(1, join(data, "--documents mask"), changes);
  const auto padded = check_unchanged(1, join(data, "--documents pad"), changes);
  CHECK((joined.weights != masked.weights));
  CHECK((masked.weights != padded.weights));
  const std::initializer_list<std::string_view> padding{
      "% of all positions are padding; split at --sequence-length 16: 20 of 90 documents",
      "masked per sample: 15% of its tokens, at most 2"};
  check_has(padded.output, padding);
  for (const auto& other : {joined, masked}) check_lacks(other.output, padding);
}
