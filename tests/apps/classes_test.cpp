// Training of text classification, from masked-language-model weights to evaluated weights.
#include "models/weights/safetensors.hpp"
#include "tests/apps/compared_runs.hpp"
#include "tests/apps/generated.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace models = ranvier::models;

namespace {

constexpr auto limit = 120s;

struct Classes : ComparedRuns {
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

  /// Saves weights of a masked language model.
  void save_masks() const {
    ends_well(1, "--json-field text --model bert --vocab-size 257 --data " + data + " --save " + masks, limit);
  }
  [[nodiscard]] Outcome tune(int ranks, const std::string& from, const Flags& more) const {
    const std::string flags = "--label-field kind --sequence-length 16 --threads 1 --init-from " + from;
    return run(ranks, join(flags + " --data " + data, more), limit);
  }

  std::string masks = file("masks");
  std::string data;
};

}  // namespace

TEST_CASE_FIXTURE(Classes, "text classification gives the same result on any grid and with states in files") {
  const Flags flags =
      "--label-field kind --learning-rate 1e-2 --steps 6 --model roberta --dropout 0.1 --data " + data;
  const auto alone =
      check_unchanged(1, flags, {{"--g-inter 3 --recompute 1", 3}, {"--offload infinity-nvme --nvme " + disk}});
  REQUIRE(alone.losses.size() == 6);
  const auto shared = train(4, join(flags, "--g-inter 2 --g-data 2 --shard zero3 --tile 2"));
  for (std::size_t step = 0; step < alone.losses.size(); ++step)
    CHECK(std::stod(shared.losses[step]) == doctest::Approx(std::stod(alone.losses[step])).epsilon(1e-4));
  const std::string config = read_file(saved + "/config.json");
  check_has(config, {"\"RobertaForSequenceClassification\"", R"({"0":"low","1":"mid","2":"top"})"});
  CHECK(models::Safetensors(saved + "/model.safetensors").find("classifier.out_proj.weight") != nullptr);
}

TEST_CASE_FIXTURE(Classes,
                  "masked-language-model weights get a classification head, and the trained one is evaluated") {
  save_masks();
  const std::string tuned = file("tuned"), held_out = "--validation-split 0.2 ";
  const Outcome trained =
      require_status(0, tune(1, masks, held_out + "--steps 3 --learning-rate 1e-2 --save " + tuned));
  check_has(validation_of(trained), {"  accuracy "});
  const Outcome evaluated = require_status(0, tune(1, tuned, held_out + "--eval-only"));
  CHECK(validation_of(evaluated) == validation_of(trained));
  check_output(64, tune(1, masks, {"--eval-only"}), {"needs a classification head"});
  check_output(64, tune(1, tuned, "--classes 4 --steps 1"),
               {"--classes 4 does not match --init-from " + tuned + ", which has 3"});
  const auto start = [&](const std::string& more) {
    return run(1, "--steps 1 --init-from " + tuned + more, limit);
  };
  const std::string other = folder.write("other.jsonl", "{\"text\": \"a\", \"kind\": \"wild\"}\n").string();
  check_output(65, start(" --label-field kind --data " + other),
               {"label 'wild' is not one of the model's 3 classes, 'low', 'mid', 'top'"});
  check_output(64, start(" --tokenizer bytes --data " + data), {"--label-field is missing"});
}

TEST_CASE_FIXTURE(Classes, "adapters train with a classification head, which is completely in PEFT's file") {
  save_masks();
  const auto tuned = [&](int ranks, const Flags& more, const std::string& from) {
    return validation_of(require_status(0, tune(ranks, from, join(more, "--validation-split 0.2"))));
  };
  const auto save = [&](int ranks, const std::string& name, const Flags& more) {
    return tuned(ranks,
                 join(more, "--lora-rank 2 --learning-rate 1e-1 --steps 4 --batch-size 8 --save " + file(name)),
                 masks);
  };
  const std::string found = save(1, "adapter", "--checkpoint " + file("kept"));
  CHECK(save(3, "stages", "--g-inter 3") == found);
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
  CHECK(tuned(1, join(beside, "--eval-only"), masks) == found);
  CHECK(tuned(1, join(beside, goes_on), masks).substr(0, 20) == found.substr(0, 20));
  require_success(
      run_generator(RANVIER_CHECKPOINT, "export " + file("kept") + " --merge -o " + file("merged"), folder));
  CHECK(tuned(1, {"--eval-only"}, file("merged")).substr(0, 20) == found.substr(0, 20));

  // PEFT's default does not train the pooler.
  save(1, "classifier", "--lora-whole classifier");
  CHECK(models::Safetensors(file("classifier") + stored).tensors().size() == 4 * 2 * 2 + 2);
}

TEST_CASE_FIXTURE(Classes, "an adapter with a module that the model lacks is refused by name") {
  const Flags flags = "--label-field kind --model bert --lora-rank 2 --lora-whole score --data " + data;
  check_output(64, run(1, small_run(text, flags), limit), {"has no module 'score'"});
}
