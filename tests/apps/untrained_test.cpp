// Tensors that are frozen or have no adapter, and positions after a sample's last one, are saved unchanged.
#include "models/families/gpt.hpp"
#include "models/families/model.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/unit_weights.hpp"
#include "tests/apps/generated.hpp"
#include "tests/apps/small_run.hpp"
#include "tests/models/safetensors_writer.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace models = ranvier::models;
using models::Safetensors;
using models::StoredTensor;
using ranvier::runtime::DType;

namespace {

constexpr int positions = 24;  // samples have 16

std::vector<float> values_of(const Safetensors& file, const StoredTensor& tensor) {
  std::vector<float> values(tensor.elements());
  file.read(tensor, 0, values.size(), values.data());
  return values;
}

/// A GPT-2 whose tensors are fp32, bf16 and fp16 in turn, with values that bf16 rounds.
struct Fixture : SmallText {
  Fixture() {
    const models::GptOptions gpt{
        .layers = 4, .hidden = 32, .heads = 2, .vocab_size = 256, .sequence_length = positions};
    auto tensors = models::tensors_of(models::make_gpt(gpt).units());
    for (std::size_t i = 0; i < tensors.size(); ++i)
      tensors[i].dtype = std::array{DType::f32, DType::bf16, DType::f16}[i % 3];
    fs::create_directories(base);
    std::vector<float> values;
    for (const auto& tensor : tensors)
      for (std::size_t i = 0; i < tensor.elements(); ++i)
        values.push_back(0.1f * std::sin(static_cast<float>(i + tensor.name.size())));
    write_tensors(base + "/model.safetensors", tensors, values);
    folder.write("base/config.json", models::model_config_json(gpt));
  }

  void check_run(int ranks, Flags more) const {
    ends_well(ranks, join("--init-from " + base + " --precision bf16", more), 120s);
  }
  std::string exported(const std::string& arguments) const {
    return require_success(run_generator(RANVIER_CHECKPOINT, "export " + arguments, folder)).text;
  }

  /// Checks that tensors of these names equal the base's; the others are fp32 and changed.
  void check_untrained(const std::string& saved, const std::function<bool(const std::string&)>& untrained) const {
    const Safetensors was(base + "/model.safetensors"), is(saved + "/model.safetensors");
    REQUIRE(is.tensors().size() == was.tensors().size());
    for (const StoredTensor& before : was.tensors()) {
      CAPTURE(before.name);
      const StoredTensor& after = *is.find(before.name);
      CHECK(after.shape == before.shape);
      CHECK(after.dtype == (untrained(before.name) ? before.dtype : DType::f32));
      CHECK((values_of(is, after) == values_of(was, before)) == untrained(before.name));
    }
  }

  std::string base = file("base"), checkpoints = file("checkpoints");
};

bool is_frozen(const std::string& name) { return name == "wte.weight" || name.starts_with("h.1."); }

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "frozen tensors and positions beyond the samples are saved unchanged, in every way of saving") {
  const Flags frozen = R"(--freeze ^wte|^h\.1\. --shard zero3 --lr-decay constant --warmup-steps 0)";
  const auto with = [&](Flags more) { return join(frozen, more); };
  check_run(2,
            with(fmt::format("--save {} --save-every 2 --checkpoint {} --g-data 2", file("saved"), checkpoints)));
  check_untrained(file("saved"), is_frozen);
  check_untrained(file("saved") + "/weights-00000002", is_frozen);
  const std::string saved = read_file(file("saved") + "/model.safetensors");

  const Safetensors before(base + "/model.safetensors"), after(file("saved") + "/model.safetensors");
  const std::vector<float> was = values_of(before, *before.find("wpe.weight")),
                           is = values_of(after, *after.find("wpe.weight"));
  constexpr std::ptrdiff_t trained = 16 * 32;
  CHECK(std::equal(is.begin() + trained, is.end(), was.begin() + trained));
  for (std::ptrdiff_t row = 0; row < trained; row += 32)
    CHECK_FALSE(std::equal(is.begin() + row, is.begin() + row + 32, was.begin() + row));
  const std::string config = read_file(file("saved") + "/config.json");
  check_has(config, {"\"n_positions\": 24", "\"torch_dtype\": \"float32\""});

  exported(checkpoints + " -o " + file("exported"));
  CHECK(read_file(file("exported") + "/model.safetensors") == saved);
  check_run(2, with("--steps 2 --checkpoint " + file("half") + " --g-data 2"));
  check_run(2, with(fmt::format("--resume {} --save {} --g-data 2", file("half"), file("resumed"))));
  CHECK(read_file(file("resumed") + "/model.safetensors") == saved);

  const Outcome without_base = run(1,
                                   small_run(text, R"(--freeze ^wte|^h\.1\. --precision bf16 --resume )" +
                                                       file("half") + " --lr-decay constant --warmup-steps 0"),
                                   120s);
  check_has(without_base.output, {"has 24 learned positions, and the model has 16; add --init-from"});

  // A resumed run takes only sizes from another base.
  const auto other = fs::path(base) / "model.safetensors";
  std::string content = read_file(other);
  content.back() ^= 1;
  folder.write("base/model.safetensors", content);
  check_run(1, with(fmt::format("--resume {} --save {}", checkpoints, file("rounded"))));
  check_has(exported(checkpoints + " -o " + file("rounded-too")), {"--init-from " + base});
  const Safetensors rounded(file("rounded") + "/model.safetensors");
  for (const StoredTensor& tensor : rounded.tensors()) CHECK(tensor.dtype == DType::f32);
  CHECK(read_file(file("rounded-too") + "/model.safetensors") == read_file(file("rounded") + "/model.safetensors"));
}

TEST_CASE_FIXTURE(Fixture, "merged adapters change only the tensors that they belong to") {
  check_run(1, "--lora-rank 2 --learning-rate 1e-1 --checkpoint " + checkpoints + " --steps 2 --warmup-steps 0");
  exported(checkpoints + " --merge -o " + file("merged"));
  check_untrained(file("merged"), [](const std::string& name) { return !name.ends_with("c_attn.weight"); });
}
