// Training of text classification, from masked-language-model weights to evaluated weights.
#include "models/weights/safetensors.hpp"
#include "tests/apps/generated.hpp"
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace models = ranvier::models;

namespace {

constexpr auto limit = 120s;

struct Classes : InFolder {
  Classes() {
    std::string lines;
    for (int n = 0; n < 60; ++n) {
      const char first = n % 3 == 0 ? 'a' : n % 3 == 1 ? 'h' : 'p';
      std::string words;
      for (int i = 0; i <= n * 7 % 19; ++i) words += static_cast<char>(first + (n + i * i) % 7);
      lines += "{\"text\": \"" + words + "\", \"kind\": \"" +
               (n % 3 == 0   ? "low"
                : n % 3 == 1 ? "mid"
                             : "top") +
               "\"}\n";
    }
    data = folder.write("texts.jsonl", lines).string();
  }

  [[nodiscard]] Outcome start(int ranks, Flags more) const {
    return run(ranks, small_run(data, join("--label-field kind --learning-rate 1e-2 --steps 6", more)), limit);
  }
  /// Weights of a masked language model.
  void save_masks() const {
    const Flags flags = "--json-field text --model bert --vocab-size 257 --save " + file("masks");
    require_status(0, run(1, small_run(data, flags), limit));
  }
  void check(int ranks, const Flags& more) const { require_status(0, start(ranks, more)); }
  void refused(const Outcome& outcome, int status, const std::string& words) const {
    INFO(outcome.output);
    CHECK(outcome.status == status);
    check_has(outcome.output, {words});
  }

  std::string data;
};

}  // namespace

TEST_CASE_FIXTURE(Classes, "text classification gives the same result on any grid and with states in files") {
  const auto losses = [&](int ranks, const std::string& name, Flags more) {
    check(ranks, join(more, fmt::format("--model roberta --dropout 0.1 --metrics {} --save {}",
                                        file(name + ".jsonl"), file(name))));
    return metric(file(name + ".jsonl"), "loss");
  };
  const auto alone = losses(1, "alone", {});
  REQUIRE(alone.size() == 6);
  CHECK(losses(3, "stages", "--g-inter 3 --recompute 1") == alone);
  CHECK(losses(1, "files", "--offload infinity-nvme --nvme " + folder.path().string()) == alone);
  CHECK(read_file(file("stages") + "/model.safetensors") == read_file(file("alone") + "/model.safetensors"));
  CHECK(read_file(file("files") + "/model.safetensors") == read_file(file("alone") + "/model.safetensors"));
  const auto shared = losses(4, "shared", "--g-inter 2 --g-data 2 --shard zero3 --tile 2");
  for (std::size_t step = 0; step < alone.size(); ++step)
    CHECK(std::stod(shared[step]) == doctest::Approx(std::stod(alone[step])).epsilon(1e-4));
  const std::string config = read_file(file("alone") + "/config.json");
  check_has(config, {"\"RobertaForSequenceClassification\"", R"({"0":"low","1":"mid","2":"top"})"});
  CHECK(models::Safetensors(file("alone") + "/model.safetensors").find("classifier.out_proj.weight") != nullptr);
}

TEST_CASE_FIXTURE(Classes,
                  "masked-language-model weights get a classification head, and the trained one is evaluated") {
  save_masks();
  const auto trained = [&](const std::string& from, Flags more) {
    return run(1,
               join(fmt::format("--init-from {} --data {} --label-field kind --sequence-length 16 --threads 1",
                                from, data),
                    more),
               limit);
  };
  const Outcome tuned = require_status(
      0, trained(file("masks"), "--steps 3 --learning-rate 1e-2 --validation-split 0.2 --save " + file("tuned")));
  check_has(validation_of(tuned), {"  accuracy "});
  const Outcome evaluated = require_status(0, trained(file("tuned"), "--eval-only --validation-split 0.2"));
  CHECK(validation_of(evaluated) == validation_of(tuned));
  refused(trained(file("masks"), {"--eval-only"}), 64, "needs a classification head");
  refused(trained(file("tuned"), "--classes 4 --steps 1"), 64,
          "--classes 4 does not match --init-from " + file("tuned") + ", which has 3");
  folder.write("other.jsonl", "{\"text\": \"a\", \"kind\": \"wild\"}\n");
  refused(
      run(1,
          fmt::format("--init-from {} --data {} --label-field kind --steps 1", file("tuned"), file("other.jsonl")),
          limit),
      65, "label 'wild' is not one of the model's 3 classes, 'low', 'mid', 'top'");
  refused(run(1, fmt::format("--init-from {} --data {} --tokenizer bytes --steps 1", file("tuned"), data), limit),
          64, "--label-field is missing");
}

TEST_CASE_FIXTURE(Classes, "adapters train with a classification head, which is completely in PEFT's file") {
  save_masks();
  const auto tuned = [&](int ranks, Flags more) {
    return validation_of(
        require_status(0, run(ranks,
                              join(more, fmt::format("--init-from {} --data {} --label-field kind "
                                                     "--sequence-length 16 --threads 1 --validation-split 0.2",
                                                     file("masks"), data)),
                              limit)));
  };
  const Flags adapted = "--lora-rank 2 --learning-rate 1e-1 --steps 4 --batch-size 8";
  const auto saved = [&](const std::string& name, const Flags& more) {
    return join(join(more, adapted), "--save " + file(name));
  };
  const std::string found = tuned(1, saved("adapter", "--checkpoint " + file("kept")));
  CHECK(tuned(3, saved("stages", "--g-inter 3")) == found);
  const std::string stored = "/adapter_model.safetensors";
  CHECK(read_file(file("stages") + stored) == read_file(file("adapter") + stored));

  const models::Safetensors weights(file("adapter") + stored);
  CHECK(weights.tensors().size() == 4 * 2 * 2 + 4);
  for (const char* name : {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight",
                           "classifier.bias", "bert.encoder.layer.3.attention.self.query.lora_B.weight"})
    CHECK(weights.find(std::string("base_model.model.") + name) != nullptr);
  const std::string config = read_file(file("adapter") + "/adapter_config.json");
  check_has(config, {R"("modules_to_save": ["classifier","pooler"])", R"("task_type": "SEQ_CLS")"});

  // Read again, for evaluation and to resume, and merged into separate weights.
  const Flags beside = "--init-adapter " + file("adapter");
  const Flags goes_on = "--steps 1 --batch-size 8 --learning-rate 1e-9 --eval-every 1 --weight-decay 0";
  CHECK(tuned(1, join(beside, "--eval-only")) == found);
  CHECK(tuned(1, join(beside, goes_on)).substr(0, 20) == found.substr(0, 20));
  require_success(
      run_generator(RANVIER_CHECKPOINT, "export " + file("kept") + " --merge -o " + file("merged"), folder));
  const Outcome merged = run(1,
                             fmt::format("--init-from {} --data {} --label-field kind --sequence-length 16 "
                                         "--threads 1 --validation-split 0.2 --eval-only",
                                         file("merged"), data),
                             limit);
  INFO(merged.output);
  check_has(merged.output, {found.substr(0, 20)});

  // PEFT's default does not train the pooler.
  static_cast<void>(tuned(1, saved("classifier", "--lora-whole classifier")));
  CHECK(models::Safetensors(file("classifier") + stored).tensors().size() == 4 * 2 * 2 + 2);
}

TEST_CASE_FIXTURE(Classes, "an adapter with a module that the model lacks is refused by name") {
  refused(start(1, "--model bert --lora-rank 2 --lora-whole score"), 64, "has no module 'score'");
}
