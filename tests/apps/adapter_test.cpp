// From a model to a separate adapter, and back to merged weights: each program reads the files of the others.
#include "models/families/adapter_files.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/apps/generated.hpp"
#include "tests/apps/same_tensors.hpp"
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace models = ranvier::models;

namespace {

constexpr auto limit = 120s;

struct Programs : SmallText {
  void check_run(int ranks, const Flags& flags) const { require_status(0, run(ranks, flags, limit)); }
  /// Runs ranvier-checkpoint; a shell splits the arguments.
  void check_tool(const std::string& arguments) const {
    require_success(run_generator(RANVIER_CHECKPOINT, arguments, folder));
  }

  [[nodiscard]] std::string drawn(const std::string& flags) const {
    const std::string all = flags + " --temperature 0 --tokens 40 --prompt The";
    return require_success(run_generator(RANVIER_GENERATOR, all, folder)).text;
  }

  std::string base = file("base"), adapter = file("adapter");
};

struct Fixture : Programs {
  Fixture() { check_run(1, llama("--save " + base)); }

  [[nodiscard]] Flags llama(Flags more) const {
    return small_run(text, join("--model llama --ffn-size 48 --kv-heads 1", more));
  }
  /// Trains adapters, separate from the base.
  [[nodiscard]] Flags adapted(Flags more = {}) const {
    return small_run(text, join("--init-from " + base +
                                    " --lora-rank 2 --lora-alpha 8 --lora-dropout 0.1 --lora-targets "
                                    "q_proj,v_proj,down_proj --learning-rate 1e-1 --steps 6",
                                more));
  }
};

}  // namespace

TEST_CASE_FIXTURE(
    Fixture, "an adapter is the same from any grid, and draws the same text when it is merged into the weights") {
  check_run(1, adapted("--save " + adapter));
  const std::string alone = read_file(adapter + "/adapter_model.safetensors");
  check_run(4, adapted("--save " + file("other") + " --g-inter 2 --g-data 2 --shard zero3"));
  check_run(
      2, adapted("--save " + file("stages") + " --save-every 3 --g-inter 2 --checkpoint " + file("checkpoints")));
  CHECK(read_file(file("stages") + "/adapter_model.safetensors") == alone);
  // Intermediate ones are complete adapters, and contain nothing of the base.
  CHECK(read_file(file("stages") + "/weights-00000006/adapter_model.safetensors") == alone);
  const std::string half_way = file("stages") + "/weights-00000003";
  CHECK(read_file(half_way + "/adapter_model.safetensors") != alone);
  CHECK(read_file(half_way + "/adapter_config.json") == read_file(adapter + "/adapter_config.json"));
  CHECK_FALSE(fs::exists(half_way + "/model.safetensors"));

  const models::LoraOptions lora = models::read_adapter_config(adapter);
  CHECK(lora.rank == 2);
  CHECK(lora.alpha == 8);
  CHECK(lora.targets == std::vector<std::string>{"down_proj", "q_proj", "v_proj"});
  const models::Safetensors file_of(adapter + "/adapter_model.safetensors");
  CHECK(file_of.tensors().size() == 4 * 3 * 2);
  CHECK(file_of.find("base_model.model.model.layers.3.self_attn.q_proj.lora_B.weight") != nullptr);
  const std::string stored = "/adapter_model.safetensors";
  check_same_tensors(adapter + stored, file("other") + stored, 1e-3f);
  check_run(
      1, adapted("--save " + file("tiled") + " --tile 2 --offload infinity-nvme --nvme " + folder.path().string()));
  check_same_tensors(adapter + stored, file("tiled") + stored, 1e-3f);

  // The checkpoint of that run: as an adapter, and as merged weights.
  check_tool("export " + file("checkpoints") + " -o " + file("exported"));
  CHECK(read_file(file("exported") + "/adapter_model.safetensors") == alone);
  const std::string config = read_file(adapter + "/adapter_config.json");
  check_has(config, {"\"lora_dropout\": 0.1,"});
  CHECK(read_file(file("exported") + "/adapter_config.json") == config);
  check_tool("export " + file("checkpoints") + " --merge -o " + file("merged"));
  const std::string with_adapter = drawn("--weights " + base + " --adapter " + adapter);
  CHECK(with_adapter == drawn("--weights " + file("merged")));
  CHECK(with_adapter != drawn("--weights " + base));

  // A resumed run takes only sizes from the weights of another base.
  fs::copy(base, file("another"));
  const Outcome resumed =
      require_status(0, run(2,
                            adapted("--init-from " + file("another") + " --save " + file("resumed") +
                                    " --g-inter 2 --checkpoint " + file("checkpoints") + " --resume auto"),
                            limit));
  check_has(resumed.output, {"started with " + base});
  CHECK(read_file(file("resumed") + "/adapter_config.json") == config);
}

TEST_CASE_FIXTURE(Programs, "an adapter of a GPT-2 has PEFT's names, and draws the text of merged weights") {
  check_run(1, small_run(text, "--save " + base));
  const Flags adapted = "--init-from " + base +
                        " --lora-rank 2 --lora-alpha 8 --learning-rate 1e-1 --steps 6 --save " + adapter +
                        " --checkpoint " + file("checkpoints") + " --g-inter 2";
  check_run(2, small_run(text, adapted));
  CHECK(models::read_adapter_config(adapter).targets == std::vector<std::string>{"c_attn"});
  check_has(read_file(adapter + "/adapter_config.json"), {"\"fan_in_fan_out\": true"});
  const models::Safetensors weights(adapter + "/adapter_model.safetensors");
  CHECK(weights.tensors().size() == 4 * 2);
  CHECK(weights.find("base_model.model.transformer.h.3.attn.c_attn.lora_A.weight") != nullptr);
  check_tool("export " + file("checkpoints") + " --merge -o " + file("merged"));
  const std::string with_adapter = drawn("--weights " + base + " --adapter " + adapter);
  CHECK(with_adapter == drawn("--weights " + file("merged")));
  CHECK(with_adapter != drawn("--weights " + base));
  // A run resumes from the saved adapter.
  check_run(1, small_run(text, "--init-from " + base + " --init-adapter " + adapter +
                                   " --eval-every 1 --steps 1 --save " + file("again")));
  CHECK(fs::exists(file("again") + "/adapter_model.safetensors"));
}

TEST_CASE_FIXTURE(Programs, "an adapter of a BERT gives the same evaluation next to its base as merged into it") {
  const Flags bert = "--vocab-size 257 --dropout 0.1 --batch-size 4";
  check_run(1, small_run(text, join(bert, "--model bert --save " + base)));
  check_run(2, small_run(text, join(bert, "--init-from " + base + " --lora-rank 2 --learning-rate 1e-1 --save " +
                                              adapter + " --checkpoint " + file("checkpoints") + " --g-inter 2")));
  const models::Safetensors weights(adapter + "/adapter_model.safetensors");
  CHECK(weights.tensors().size() == 4 * 2 * 2);
  CHECK(weights.find("base_model.model.bert.encoder.layer.3.attention.self.query.lora_B.weight") != nullptr);
  CHECK(models::read_adapter_config(adapter).targets == std::vector<std::string>{"query", "value"});
  check_has(read_file(adapter + "/adapter_config.json"), {"\"task_type\": null"});

  check_tool("export " + file("checkpoints") + " --merge -o " + file("merged"));
  const auto evaluated = [&](Flags flags) {
    const Outcome outcome = require_status(
        0,
        run(1,
            join(flags, "--data " + text + " --eval-only --validation-split 0.2 --sequence-length 16 --threads 1"),
            limit));
    return validation_of(outcome).substr(0, std::string_view("validation loss 0.0000").size());
  };
  const std::string merged = evaluated("--init-from " + file("merged"));
  CHECK(evaluated("--init-from " + base + " --init-adapter " + adapter) == merged);
  CHECK(evaluated("--init-from " + base) != merged);
}
