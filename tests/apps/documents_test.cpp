// Complete runs whose samples have several documents, or prompts and completions: the same bits on every grid, and
// their messages.
#include "tests/apps/compared_runs.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Fixture : ComparedRuns {
  /// Tokens of documents that end with 0.
  std::string tokens = [this] {
    std::vector<std::uint16_t> drawn;
    std::uint32_t state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 1664525u + 1013904223u;
      drawn.push_back(static_cast<std::uint16_t>(state >> 29));
    }
    return folder.write("tokens.bin", token_file(drawn)).string();
  }();
  /// Prompts and completions.
  std::string lines = [this] {
    std::string all;
    for (int i = 0; i < 120; ++i)
      all +=
          "{\"ask\": \"" + std::string(1 + i % 3, 'q') + "\", \"say\": \"" + std::string(1 + i % 5, 'a') + "\"}\n";
    return folder.write("lines.jsonl", all).string();
  }();

  TrainedRun check_every_way(const Flags& flags) const {
    return check_unchanged(1, flags,
                           {{"--g-inter 3 --recompute 1 --policy 1f1b", 3},
                            {"--g-inter 3 --policy zero-bubble --deferred-limit 2", 3},
                            {"--g-inter 2 --offload infinity-cpu --recompute 2 --policy gpipe", 2}});
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "documents that do not attend to each other give the same bits on every grid and in every tier") {
  const Flags joined = "--data " + tokens;
  const TrainedRun masked = check_every_way(join(joined, "--documents mask --document-end 0"));
  CHECK((train(1, joined).weights != masked.weights));
}

TEST_CASE_FIXTURE(Fixture,
                  "a LLaMA with such documents validates and generates during training, which changes no bit") {
  const Flags flags =
      "--documents mask --document-end 0 --model llama --ffn-size 48 --validation-split 0.1 --data " + tokens;
  const TrainedRun quiet = train(1, join(flags, "--eval-every 0"));
  const TrainedRun busy = train(2, join(flags,
                                        "--g-inter 2 --tokenizer bytes --token-format llmc --eval-every 2 "
                                        "--sample-every 2 --sample-tokens 3"));
  CHECK(busy.losses == quiet.losses);
  CHECK(busy.norms == quiet.norms);
  CHECK((busy.weights == quiet.weights));
}

TEST_CASE_FIXTURE(Fixture, "completions of prompts give the same bits on every grid and in every tier") {
  check_every_way("--prompt-field ask --json-field say --data " + lines);
}

TEST_CASE_FIXTURE(Fixture, "the perplexity per byte counts the completions' bytes that have losses") {
  // Completions are truncated at the end of a sample: all tokens with a loss are one byte each.
  std::string all;
  for (int i = 0; i < 20; ++i)
    all += "{\"ask\": \"the world\", \"say\": \"" + std::string(400, static_cast<char>('c' + i % 2)) + "\"}\n";
  const std::string answers = folder.write("answers.jsonl", all).string();
  const std::string tokenizer = folder.write("tokenizer.json", SmallTokenizer().tokenizer_json()).string();
  static_cast<void>(train(1, "--data " + answers + " --tokenizer " + tokenizer +
                                 " --vocab-size 300 --prompt-field ask --json-field say --steps 1 "
                                 "--validation-split 0.25"));
  CHECK(metric(metrics, "validation_perplexity_per_byte") == metric(metrics, "validation_perplexity"));
}

TEST_CASE_FIXTURE(Fixture,
                  "steps in which no token has a loss are reported, and are not used for spike detection") {
  // 17 batches of documents of one token, then others.
  std::vector<std::uint16_t> drawn(17 * 4 * 16 + 1, 0);
  for (int i = 0; i < 3 * 4 * 16; ++i) drawn.push_back(static_cast<std::uint16_t>(1 + i * i % 7));
  const std::string data = folder.write("ends.bin", token_file(drawn)).string();
  const TrainedRun run =
      train(1, "--documents mask --document-end 0 --shuffle off --steps 20 --spike-factor 2 --data " + data);
  REQUIRE(run.losses.size() == 20);
  CHECK(std::count(run.losses.begin(), run.losses.end(), "null") == 17);
  CHECK(run.losses[17] != "null");
  check_has(run.output, {"step 17/20  no losses", "\nloss 5.5"});  // the first loss
}

TEST_CASE_FIXTURE(Fixture, "a dry run's table has the documents of samples") {
  check_output(0, run(1, small_run(tokens, "--documents mask --document-end 0 --dry-run"), 20s),
               {"documents of samples"});
}
