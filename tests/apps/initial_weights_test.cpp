// Effects of --init-from, from flags to saved files: without runs and ranks.
#include "apps/options/initial_weights.hpp"

#include "apps/files/train_job.hpp"
#include "models/families/llama.hpp"
#include "models/families/model.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/train_flags.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

TrainOptions parse(const Flags& flags) { return parse_train(flags, 1); }

/// A folder with a model's config.json, and zeros for its weights and for `more` tensors.
void write_model(const TemporaryFolder& folder, const std::string& name, const models::ModelSizes& sizes,
                 const std::vector<models::TensorToStore>& more = {}) {
  folder.write(name + "/config.json", models::model_config_json(sizes));
  const auto units = models::make_model(sizes).units();
  auto tensors = models::tensors_of(units);
  tensors.insert(tensors.end(), more.begin(), more.end());
  write_tensors(folder.path() / name / "model.safetensors", tensors, std::vector<float>(elements_of(tensors)));
}

/// A folder with a GPT of 2 layers, 285 tokens and 64 positions.
struct Fixture {
  Fixture() { write_model(folder, "model", sizes); }

  [[nodiscard]] std::string path(const std::string& name = "model") const {
    return (folder.path() / name).string();
  }

  [[nodiscard]] TrainOptions from_model(const Flags& more = {}) const {
    Flags flags = "--init-from " + path() + " --data a.bin";
    for (const std::string& flag : more) {
      const auto given = std::find(flags.begin(), flags.end(), flag);
      if (flag == "--data" && given != flags.end()) flags.erase(given, given + 2);
    }
    flags.insert(flags.end(), more.begin(), more.end());
    return parse(flags);
  }
  void refused(const Flags& more, std::initializer_list<std::string_view> words) const {
    const Error error = printed_error_of([&] { static_cast<void>(from_model(more)); });
    check_has(error.what(), words);
  }

  models::GptOptions sizes{.layers = 2, .hidden = 16, .heads = 4, .vocab_size = 285, .sequence_length = 64};
  TemporaryFolder folder;
  SmallTokenizer small;
};

bool notes(const TrainOptions& options, std::string_view words) {
  return std::any_of(options.notes.begin(), options.notes.end(),
                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "sizes come with the weights, and a contradicting flag is refused") {
  check_values(from_model(), "--layers 2 --hidden 16 --heads 4 --vocab-size 285 --sequence-length 64");
  CHECK(from_model("--layers 2 --vocab-size 285").model.gpt().layers == 2);
  refused("--layers 3", {"--layers 3 does not match --init-from", "which has 2"});
  refused("--heads 2", {"--heads 2 differs from ", "config.json: 4; remove --heads"});
  refused("--model gpt2-small", {"--model gpt2-small, with --layers 12,", "which has 2"});
}

TEST_CASE_FIXTURE(Fixture, "without a config.json sizes come from the tensors, and --heads is required") {
  std::filesystem::remove(path("model/config.json"));
  refused({}, {"--heads"});
  check_values(from_model("--heads 2"), "--layers 2 --heads 2 --vocab-size 285");
  refused("--model gpt2-small", {"--heads 12 does not divide the 16 channels"});
}

TEST_CASE_FIXTURE(Fixture, "a folder without a model is refused with its actual contents") {
  const auto from = [&](const std::string& name) {
    return printed_error_of([&] { static_cast<void>(parse("--init-from " + path(name) + " --data a.bin")); });
  };
  folder.write("adapter/adapter_config.json", "{}");
  folder.write("adapter/adapter_model.safetensors", "");
  for (const char* const name : {"adapter", "adapter/adapter_model.safetensors"}) {
    CHECK(from(name).code() == ErrorCode::usage);
    CHECK(says(from(name), path(name) + " has an adapter"));
    CHECK(says(from(name), "--init-adapter"));
  }
  folder.write("clone/model.safetensors",
               "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 548105171\n");
  check_has(from("clone").what(), {"clone/model.safetensors: a git-LFS pointer", "git lfs pull"});

  write_model(folder, "llama",
              models::LlamaOptions{.layers = 1, .hidden = 8, .heads = 2, .inner = 8, .vocab_size = 9});
  std::filesystem::remove(path("llama/config.json"));
  const TrainOptions options = parse("--init-from " + path("llama") + " --data a.bin");
  const auto missing = printed_error_of([&] { static_cast<void>(make_job(options)); });
  check_has(missing.what(), {"config.json is missing in the folder of " + path("llama/model.safetensors"),
                             "copy the model's config.json"});
}

TEST_CASE_FIXTURE(Fixture, "weights of another kind of model are named by their config.json") {
  const models::LlamaOptions llama{.layers = 1, .hidden = 16, .heads = 4, .inner = 8, .vocab_size = 285};
  folder.write("model/config.json", models::model_config_json(llama));
  refused({}, {"config.json: the model is llama", "has the tensors of gpt2; use files of one model"});
}

TEST_CASE_FIXTURE(Fixture, "a shorter --sequence-length uses the first positions, and a longer one is refused") {
  const TrainOptions shorter = from_model("--sequence-length 48");
  CHECK(shorter.model.gpt().sequence_length == 48);
  CHECK(shorter.model.gpt().position_rows() == 64);
  CHECK(notes(shorter, "positions: the first 48 of the 64 in " + path("model/model.safetensors")));
  CHECK_FALSE(notes(from_model(), "positions"));
  refused("--sequence-length 65", {"--sequence-length 65 exceeds the 64 positions", "at most 64"});
}

TEST_CASE_FIXTURE(Fixture, "dropout is config.json's by default, and three different rates need the flag") {
  const auto write = [&](const char* rate) {
    std::string config = models::model_config_json(sizes);
    for (const char* key : {"embd", "attn", "resid"}) {
      const std::string whole = std::string("\"") + key + "_pdrop\": 0";
      config.replace(config.find(whole), whole.size(), whole.substr(0, whole.size() - 1) + rate);
      if (std::string_view(rate) == "0.3") rate = "0.2";
    }
    folder.write("model/config.json", config);
  };
  write("0.1");
  const TrainOptions taken = from_model();
  CHECK(taken.model.gpt().dropout == 0.1f);
  CHECK(notes(taken, "dropout: 0.1 (from " + path("model/config.json") + ")"));
  const TrainOptions given = from_model("--dropout 0");
  CHECK(given.model.gpt().dropout == 0);
  CHECK_FALSE(notes(given, "dropout"));
  write("0.3");
  refused({}, {"'attn_pdrop' 0.2", "'embd_pdrop' 0.3", "--dropout"});
  CHECK(from_model("--dropout 0.3").model.gpt().dropout == 0.3f);
}

TEST_CASE_FIXTURE(Fixture, "text is read with the tokenizer next to the weights, or needs a flag that names one") {
  refused("--data a.txt",
          {"--data a.txt is text", "285 tokens", "--tokenizer PATH", "--tokenizer bytes", "token files"});
  CHECK(from_model("--data a.txt --tokenizer bytes").data.tokenizer == Tokenizer::bytes);
  folder.write("model/tokenizer.json", small.tokenizer_json());
  const TrainOptions beside = from_model("--data a.txt");
  CHECK(beside.data.tokenizer == Tokenizer::gpt2);
  CHECK(beside.data.gpt2 == path());
  CHECK(notes(beside, "tokenizer: " + path() + " (next to the weights)"));
  CHECK(from_model("--data a.txt --tokenizer bytes").data.tokenizer == Tokenizer::bytes);
  CHECK(from_model().data.tokenizer == Tokenizer::none);  // for token files
}

TEST_CASE_FIXTURE(Fixture, "for a small vocabulary the tokenizer next to the weights takes precedence over bytes") {
  sizes.vocab_size = 200;
  write_model(folder, "model", sizes);
  CHECK(from_model("--data a.txt").data.tokenizer == Tokenizer::bytes);
  folder.write("model/vocab.txt", "[UNK]\n[SEP]\nthe\n");
  const TrainOptions beside = from_model("--data a.txt");
  CHECK(beside.data.tokenizer == Tokenizer::gpt2);
  CHECK(beside.data.gpt2 == path());
}

TEST_CASE_FIXTURE(Fixture, "text for a preset's vocabulary also needs a tokenizer") {
  check_usage_error({"--model gpt2-small has 50257 tokens", "--tokenizer PATH", "bytes", "token files"},
                    [] { static_cast<void>(parse("--model gpt2-small --data a.txt")); });
  CHECK(parse("--model gpt2-small --data a.bin").data.tokenizer == Tokenizer::none);
  CHECK(parse("--model gpt2-small --dry-run").data.tokenizer == Tokenizer::bytes);
  CHECK(parse("--model gpt2-small --data a.txt --vocab-size 256").notes.empty());
  CHECK(notes(parse("--vocab-size 512 --data a.txt"), "tokenizer: bytes (256 of the 512 tokens"));
}

TEST_CASE_FIXTURE(Fixture, "ignored tensors are reported, and the flag needs weights") {
  write_model(folder, "model", sizes, {{"h.2.ln_1.weight", runtime::DType::f32, {16}}});
  refused({}, {"'n_layer' is 2", "'h.2.ln_1.weight'"});
  CHECK(notes(from_model(R"(--ignore-tensors h\.2\.)"), "--ignore-tensors: 1 tensor of " +
                                                            path("model/model.safetensors") +
                                                            " not read, the first is 'h.2.ln_1.weight'"));
  const auto error = printed_error_of([] { static_cast<void>(parse("--data a --ignore-tensors x")); });
  CHECK(says(error, "--ignore-tensors x needs weights; add --init-from"));
}

TEST_CASE_FIXTURE(Fixture, "the tokenizer and the original companion files are saved with the weights") {
  folder.write("model/tokenizer.json", small.tokenizer_json());
  folder.write("model/generation_config.json", R"({"eos_token_id": 284})");
  folder.write("other/small.tiktoken", small.tiktoken());
  const auto saved = [&](const Flags& more) {
    return files_beside_weights(from_model(join(more, "--save " + path("out"))));
  };
  const std::string generation = R"({"eos_token_id": 284})";
  using Files = std::map<std::string, std::string>;
  const Files with_its_own{{"generation_config.json", generation}, {"tokenizer.json", small.tokenizer_json()}};
  CHECK(saved({}) == with_its_own);
  CHECK(saved("--data a.txt") == with_its_own);
  CHECK(saved("--data a.txt --tokenizer bytes") == Files{{"generation_config.json", generation}});
  CHECK(saved(fmt::format("--data a.txt --tokenizer {}", "gpt2:" + path("other/small.tiktoken"))) ==
        Files{{"generation_config.json", generation}, {"small.tiktoken", small.tiktoken()}});
  CHECK(files_beside_weights(from_model()).empty());
  CHECK(initial_config(from_model()) == folder.read("model/config.json"));
  CHECK(initial_config(parse("--data a")).empty());
}

TEST_CASE_FIXTURE(Fixture,
                  "a model of another family comes with its weights, and contradicting flags are refused") {
  write_model(folder, "llama",
              models::LlamaOptions{.layers = 2,
                                   .hidden = 24,
                                   .heads = 4,
                                   .key_heads = 2,
                                   .inner = 40,
                                   .vocab_size = 70,
                                   .sequence_length = 4096,
                                   .rope_base = 500000});
  const auto taken = [&](const Flags& more) {
    return parse(join("--init-from " + path("llama") + " --data a.bin", more));
  };
  const TrainOptions plain = taken({});
  CHECK(plain.model.name == "llama");
  const auto& llama = std::get<models::LlamaOptions>(plain.model.sizes);
  CHECK(llama.rope_base == 500000);
  CHECK(llama.key_heads == 2);
  CHECK(llama.sequence_length == 2048);
  CHECK(notes(plain, "positions: 2048 of the 4096"));
  check_values(taken("--sequence-length 4096"), "--sequence-length 4096");
  // Explicit flags, also of its family, give the same model.
  check_values(taken("--hidden 24 --layers 2"), "--ffn-size 40");
  check_values(taken("--model llama --kv-heads 2 --head-size 0"), "--head-size 6");
  check_values(taken("--model mistral --window 0"), "--heads 4");

  const auto refuses = [&](const Flags& more, std::initializer_list<std::string_view> words) {
    check_usage_error(words, [&] { static_cast<void>(taken(more)); });
  };
  refuses("--model gpt2-small", {"--model gpt2-small", "is a llama"});
  refuses("--model qwen3", {"--model qwen3", "is a llama"});
  refuses("--layers 3", {"--layers 3", "which has 2"});
  refuses("--model llama --kv-heads 4", {"--kv-heads 4", "which has 2"});
  CHECK(taken("--kv-heads 2").model.size(models::Size::kv_heads) == 2);
  refuses("--kv-heads 3", {"--kv-heads 3", "which has 2"});
  refuses("--classes 3", {"--classes 3: --model llama has no such size", "bert, roberta"});
  refuses("--dropout 0.1", {"--dropout 0.1", "without dropout"});
  refuses("--heads 2", {"--heads 2 differs from ", "config.json: 4; remove --heads"});
  refuses("--sequence-length 5000", {"5000", "use at most 4096"});
  CHECK(taken("--tile 2").model.size(models::Size::tile) == 2);
  refuses("--tile 3", {"--tile 3 does not divide --ffn-size 40", "such as 2"});
}

TEST_CASE_FIXTURE(Fixture,
                  "a RoBERTa comes with its weights, its dropout and its positions, and bytes have a mask token") {
  write_model(folder, "roberta",
              models::BertOptions{.layers = 2,
                                  .hidden = 24,
                                  .heads = 4,
                                  .inner = 40,
                                  .vocab_size = 257,
                                  .sequence_length = 64,
                                  .roberta = true,
                                  .padding_token = 1,
                                  .dropout = 0.25f});
  const auto taken = [&](const Flags& more) {
    return parse(join("--init-from " + path("roberta") + " --data a.txt", more));
  };
  const TrainOptions plain = taken({});
  CHECK(plain.model.name == "roberta");
  CHECK(plain.model.size(models::Size::sequence_length) == 64);
  CHECK(models::dropout_of(plain.model.sizes) == 0.25f);
  CHECK(plain.data.tokenizer == Tokenizer::bytes);
  const TrainOptions shorter = taken("--sequence-length 16");
  CHECK(shorter.model.size(models::Size::sequence_length) == 16);
  CHECK(notes(shorter, "the first 16 of the 64"));
  const auto refuses = [&](const Flags& more, std::string_view words) {
    check_usage_error({words}, [&] { static_cast<void>(taken(more)); });
  };
  const TrainOptions with_classes =
      parse("--init-from " + path("roberta") + " --classes 3 --label-field kind --dry-run");
  CHECK(with_classes.model.size(models::Size::classes) == 3);
  // Plans repeat flags with their written values.
  const char* const words[] = {"ranvier-train", "--classes", "3"};
  for (const GivenFlag& flag : given_train_flags(3, words)) CHECK(flag.value == "3");
  refuses("--model bert", "is a roberta");
  refuses("--sequence-length 65", "has learned; use at most 64");
  refuses("--sample-every 5", "--sample-every 5 needs a causal language model, but --model roberta");
  refuses("--mask-token 257", "--mask-token 257 is not below the vocabulary size, 257");
}

TEST_CASE_FIXTURE(Fixture, "the saved generation config has a tokenizer's start and end tokens") {
  const models::ModelSizes writes = models::LlamaOptions(), fills = models::BertOptions();
  const auto tokenizer = [&](const std::string& json) {
    return models::read_tokenizer(folder.write("new/tokenizer.json", json));
  };
  std::string json = small.tokenizer_json();
  const std::string both = "{\n  \"bos_token_id\": 284,\n  \"eos_token_id\": 284\n}\n";
  CHECK(generation_config(writes, tokenizer(json)) == both);
  CHECK(generation_config(fills, tokenizer(json)).empty());
  CHECK(generation_config(writes, models::Tokenizer()).empty());
  const std::string last = R"("special": true})";
  json.insert(json.find(last) + last.size(), R"(, {"id": 285, "content": "<s>", "special": true})");
  folder.write("new/tokenizer_config.json", R"({"bos_token": "<s>"})");
  CHECK(generation_config(writes, tokenizer(json)) == "{\n  \"bos_token_id\": 285,\n  \"eos_token_id\": 284\n}\n");
}
