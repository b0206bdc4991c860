// From training to text: a model is trained and saved, and ranvier-generate prints text from it.
#include "models/core/initialize.hpp"
#include "models/families/model.hpp"
#include "models/tokenizers/unicode.hpp"
#include "models/weights/unit_weights.hpp"
#include "tests/apps/generated.hpp"
#include "tests/apps/small_run.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// ranvier-generate in a folder.
struct Generator : SmallText {
  [[nodiscard]] Generated generate(const std::string& flags) const {
    return run_generator(RANVIER_GENERATOR, flags, folder);
  }
  /// Report of a run that must fail.
  [[nodiscard]] std::string error(const std::string& flags) const {
    const Generated result = generate(flags);
    CHECK(WEXITSTATUS(result.status) >= 64);
    CHECK(result.text.empty());
    return result.report;
  }
};

struct Fixture : Generator {
  Fixture() { ends_well(1, "--steps 30 --learning-rate 1e-2 --save " + model, 120s); }

  std::string model = file("model");
};

/// A model of a BPE's tokens in a folder with its tokenizer. It was not trained: it draws all tokens with equal
/// probability, or one far more often than the others.
struct OfWords : Generator {
  OfWords() {
    folder.write("model/tokenizer.json", small.tokenizer_json());
    write_model("model", std::nullopt);
  }

  /// In one file, or in two with an index, in Hugging Face's format of large models.
  void write_model(const std::string& name, std::optional<std::int32_t> likeliest,
                   ranvier::runtime::DType dtype = ranvier::runtime::DType::f32, int files = 1) const {
    using namespace ranvier;
    const models::GptOptions options{
        .layers = 1, .hidden = 16, .heads = 2, .vocab_size = small.end_of_text() + 4, .sequence_length = 64};
    std::filesystem::create_directories(folder.path() / name);
    folder.write(name + "/config.json", models::model_config_json(options));
    const auto units = models::make_gpt(options).units();
    std::string index;
    for (int f = 0; f < files; ++f) {
      const std::size_t begin = units.size() * static_cast<std::size_t>(f) / static_cast<std::size_t>(files);
      const std::size_t end = units.size() * static_cast<std::size_t>(f + 1) / static_cast<std::size_t>(files);
      const std::string file =
          files == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files);
      write_units(folder.path() / name / file, std::span(units).subspan(begin, end - begin), likeliest, dtype);
      for (const auto& tensor : models::tensors_of(std::span(units).subspan(begin, end - begin), dtype))
        index += fmt::format(R"({}"{}":"{}")", index.empty() ? "" : ",", tensor.name, file);
    }
    if (files > 1)
      folder.write(name + "/model.safetensors.index.json", R"({"metadata":{},"weight_map":{)" + index + "}}");
  }

  static void write_units(const std::filesystem::path& path, std::span<const ranvier::models::UnitSpec> units,
                          std::optional<std::int32_t> likeliest, ranvier::runtime::DType dtype) {
    using namespace ranvier;
    std::vector<float> all;
    for (const models::UnitSpec& unit : units) {
      std::vector<float> values(unit.elements());
      models::initialize(unit, 3, 0, values.size(), values.data());
      if (likeliest && unit.name == "ln_f") std::fill(values.begin(), values.end(), 1.0f);
      if (likeliest && unit.name == "wte") {
        for (std::size_t c = 0; c < 16; ++c) values[static_cast<std::size_t>(*likeliest) * 16 + c] = 10;
      }
      for (std::size_t i = 0; i < unit.parameters.size(); ++i)
        all.insert(all.end(), &values[unit.offset(i)], &values[unit.offset(i)] + unit.parameters[i].elements());
    }
    write_tensors(path, models::tensors_of(units, dtype), all);
  }

  SmallTokenizer small;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a trained model generates the same text on any number of threads, and others with other seeds") {
  const std::string flags = "--weights " + model + " --prompt 'node axon ' --tokens 40";
  const Generated one = require_success(generate(flags + " --threads 1"));
  CHECK(one.text.size() == 10 + 40 + 1);
  CHECK(one.text.starts_with("node axon "));
  check_has(one.report, {"tokens/s", "the context of 16 was full"});
  CHECK(generate(flags + " --threads 3").text == one.text);
  CHECK(generate(flags + " --seed 9").text != one.text);
  const Generated half = generate(flags + " --precision bf16 --threads 1");
  CHECK(half.status == 0);
  CHECK(generate(flags + " --precision bf16 --threads 2").text == half.text);
}

TEST_CASE_FIXTURE(OfWords, "the tokenizer next to the weights is used, and several texts are drawn") {
  const std::string flags =
      "--weights " + file("model") + " --temperature 1 --top-k 0 --tokens 30 --prompt 'the 中 '";
  const Generated two = require_success(generate(flags + " --num-samples 2 --threads 1"));
  const std::string separator = "\n---------------\n";
  const auto cut = two.text.find(separator);
  REQUIRE(cut != std::string::npos);
  const std::string first = two.text.substr(0, cut), second = two.text.substr(cut + separator.size());
  CHECK(first.starts_with("the 中 "));
  CHECK(second.starts_with("the 中 "));
  CHECK(first + "\n" != second);
  check_lacks(first, {"<|endoftext|>"});
  CHECK(generate(flags + " --threads 2").text == first + "\n");
  const Generated named = generate(flags + " --threads 1 --tokenizer gpt2:" + file("model/tokenizer.json"));
  CHECK(named.text == first + "\n");
}

TEST_CASE_FIXTURE(OfWords, "weights of any precision, in one file or in several, draw the same text") {
  using ranvier::runtime::DType;
  folder.write("parts/tokenizer.json", small.tokenizer_json());
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(std::string(to_string(dtype)));
    write_model("model", std::nullopt, dtype);
    write_model("parts", std::nullopt, dtype, 3);
    const std::string flags = " --temperature 1 --top-k 0 --tokens 30 --prompt the --threads 1";
    const Generated one = generate("--weights " + file("model") + flags);
    const Generated several = generate("--weights " + file("parts") + flags);
    INFO(several.report);
    CHECK(one.status == 0);
    CHECK(several.status == 0);
    CHECK(several.text == one.text);
  }
}

TEST_CASE_FIXTURE(OfWords,
                  "a prompt from the flag, a file or stdin has the same effect, without its final newline") {
  const std::string flags = "--weights " + file("model") + " --tokens 8 --threads 1";
  const Generated by_flag = generate(flags + " --prompt 'the 中\n in'");
  folder.write("unix.txt", "the 中\n in\n");
  folder.write("dos.txt", "the 中\n in\r\n");
  const Generated by_file = generate(flags + " --prompt-file " + file("unix.txt"));
  INFO(by_file.report);
  CHECK(by_flag.text.starts_with("the 中\n in"));
  CHECK(by_file.text == by_flag.text);
  CHECK(generate(flags + " --prompt-file " + file("dos.txt")).text == by_flag.text);
  CHECK(generate(flags + " --prompt - <" + file("unix.txt")).text == by_flag.text);
  check_has(error(flags + " --prompt - </dev/null"), {"--prompt - is empty"});
  check_has(error(flags + " --prompt-file " + file("none.txt")), {"--prompt-file " + file("none.txt")});
  check_has(error(flags + " --prompt-file " + file("unix.txt") + " --prompt a"),
            {"--prompt 'a' cannot be combined with --prompt-file"});
}

TEST_CASE_FIXTURE(OfWords, "weights with an unused tensor are refused, unless the tensor is ignored") {
  const auto more = file("model/more.safetensors");
  write_tensors(more, {{"lm_head.weight", ranvier::runtime::DType::f32, {1}}}, {1});
  std::string index;
  const ranvier::models::Safetensors model(file("model/model.safetensors"));
  for (const auto& tensor : model.tensors()) index += "\"" + tensor.name + "\":\"model.safetensors\",";
  folder.write("model/all.json", R"({"weight_map":{)" + index + R"("lm_head.weight":"more.safetensors"}})");
  const std::string flags = "--weights " + file("model/all.json") + " --tokens 3 --threads 1";
  check_has(error(flags), {"'lm_head.weight' differs from 'wte.weight'"});
  const Generated ignoring = generate(flags + " --ignore-tensors ^lm_head");
  CHECK(ignoring.status == 0);
  check_has(ignoring.report, {"ignored tensors: 1, first 'lm_head.weight'"});
}

TEST_CASE_FIXTURE(OfWords, "training from a folder with a tokenizer saves a folder with that tokenizer") {
  std::string config = read_file(file("model/config.json"));
  const std::string nothing = "\"eos_token_id\": null";
  config.replace(config.find(nothing), nothing.size(), "\"eos_token_id\": 284, \"mine\": [1e-05]");
  folder.write("model/config.json", config);
  folder.write("model/generation_config.json", "{\"max_length\": 7}");
  const std::string data = folder.write("text.txt", small_text()).string();
  check_output(0,
               run(1,
                   "--data " + data + " --init-from " + file("model") + " --save " + file("tuned") +
                       " --sequence-length 32 --steps 1 --threads 1 --dropout 0.25",
                   60s),
               {"tokenizer: " + file("model") + " (next to the weights)",
                "positions: the first 32 of the 64 in " + file("model/model.safetensors")});
  CHECK(read_file(file("tuned/tokenizer.json")) == small.tokenizer_json());
  CHECK(read_file(file("tuned/generation_config.json")) == "{\"max_length\": 7}");
  const auto tuned = ranvier::models::read_model_config(file("tuned"));
  REQUIRE(tuned);
  CHECK(ranvier::models::value_of(tuned->sizes, ranvier::models::Size::sequence_length) == 64);
  CHECK(tuned->dropout.at("resid_pdrop") == 0.25f);
  check_has(tuned->text, {"\"eos_token_id\": 284,\n  \"mine\": [1e-05],"});
  CHECK(generate("--weights " + file("tuned") + " --prompt the --tokens 3").status == 0);
}

TEST_CASE_FIXTURE(OfWords, "the tokenizer's start tokens precede a prompt, once, unless disabled") {
  const std::string flags = "--weights " + file("model") + " --tokens 1 --threads 1";
  const auto tokens = [&](const std::string& more) {
    const Generated generated = require_success(generate(flags + more));
    const auto begin = generated.report.find("prompt: ") + 8;
    return std::stoi(generated.report.substr(begin));
  };
  const std::string prompt = " --prompt 'the 中 '";
  const int plain = tokens(prompt);
  std::string json = small.tokenizer_json();
  json.insert(1, R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": )"
                 R"("<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}, )");
  folder.write("model/tokenizer.json", json);
  CHECK(tokens(prompt) == plain + 1);
  CHECK(tokens(prompt + " --begin-of-text off") == plain);
  CHECK(tokens(" --prompt '<|endoftext|>the 中 '") == plain + 1);
  CHECK(tokens("") == 1);
}

TEST_CASE_FIXTURE(OfWords, "a text ends with its end of text, unless that is ignored") {
  write_model("model", small.end_of_text());
  const std::string flags = "--weights " + file("model") + " --temperature 0 --tokens 5";
  const Generated ended = generate(flags + " --prompt the");
  INFO(ended.report);
  CHECK(ended.text == "the\n");
  check_has(ended.report, {"then 1 tokens"});
  const Generated ignoring = generate(flags + " --prompt the --ignore-end-of-text");
  CHECK(ignoring.text == "the\n");
  check_has(ignoring.report, {"then 5 tokens"});
  const Generated begun = generate(flags);  // starts after the end of an earlier text
  check_has(begun.report, {"prompt: 1 tokens"});
  CHECK(begun.text == "\n");
}

TEST_CASE_FIXTURE(OfWords, "a character is printed complete, and an incomplete one is printed at the end") {
  write_model("model", 0xe4 - 0xae + 94 + 12);  // the byte 0xe4 in GPT-2's order, which starts a character
  const Generated result = generate("--weights " + file("model") + " --temperature 0 --tokens 3 --prompt a");
  INFO(result.report);
  CHECK(result.text == "a\xe4\xe4\xe4\n");
}

TEST_CASE_FIXTURE(OfWords, "a model without its tokenizer, or with another one, is refused with a remedy") {
  const std::string alone = file("alone");
  write_model("alone", std::nullopt);
  check_has(error("--weights " + alone), {"--tokenizer PATH"});
  CHECK(generate("--weights " + alone + " --tokenizer bytes --tokens 3").status == 0);
  small.merges.resize(small.merges.size() + 8, {"t", "h"});
  for (std::size_t i = small.merges.size() - 8; i < small.merges.size(); ++i)
    small.merges[i] = {std::string(1, static_cast<char>('A' + i % 26)), "q"};
  folder.write("other/tokenizer.json", small.tokenizer_json());
  check_has(error("--weights " + alone + " --tokenizer " + file("other")), {"the tokenizer has"});
  check_has(error("--weights " + alone + " --tokenizer words"), {"bytes, or the PATH"});
}

TEST_CASE_FIXTURE(Fixture, "errors of ranvier-generate are one line") {
  check_has(error("--prompt x"), {"--weights is missing"});
  const Generated help = generate("-h");
  CHECK(help.status == 0);
  CHECK(help.text == generate("--help").text);
  check_has(error("--weights " + file("nothing.safetensors")), {"nothing.safetensors"});
  check_has(error("--weights " + folder.path().string()), {"has no model.safetensors"});
  check_has(error("--weights " + model + " --heads 4"), {"remove --heads"});
  check_has(error("--weights " + model + " --top-p 0"), {"--top-p 0"});
  std::filesystem::copy(model + "/model.safetensors", file("alone.safetensors"));
  check_has(error("--weights " + file("alone.safetensors")), {"add --heads"});
  check_has(error("--weights " + file("alone.safetensors") + " --heads 5"), {"does not divide"});
  CHECK(generate("--weights " + file("alone.safetensors") + " --heads 2 --tokens 3").status == 0);
}

TEST_CASE_FIXTURE(Fixture, "training continues from a saved folder with the sizes of its config.json") {
  const auto again = [&](const Flags& more) {
    return run(1, join("--data " + text + " --init-from " + model + " --steps 1 --threads 1 --timeout 20", more),
               60s);
  };
  check_output(0, again({}), {"gpt 4 × 32, 2 heads"});
  const Outcome other = again("--heads 4");
  CHECK(other.status != 0);
  check_has(other.output, {"--heads 4", "config.json"});
}
