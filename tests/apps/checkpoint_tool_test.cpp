#include "apps/checkpoint/checkpoint_tool.hpp"

#include "apps/checkpoint/saved_training.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/flags.hpp"
#include "tests/apps/printed_errors.hpp"
#include "tests/apps/small_training.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier;
using namespace ranvier::tests;
namespace fs = std::filesystem;

namespace {

apps::CheckpointToolResult run_tool(const std::vector<std::string>& arguments) {
  const auto options = parse_flags("ranvier-checkpoint", arguments, apps::parse_checkpoint_options);
  return options.run(options);
}

struct Fixture {
  std::string save(std::int64_t step, float seed = 1) const {
    SmallTraining training;
    training.step = step;
    training.seed = seed;
    return training.save(dir).string();
  }
  [[nodiscard]] std::string refusal(const std::vector<std::string>& arguments) const {
    const Error error = printed_error_of([&] { run_tool(arguments); });
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }

  TemporaryFolder folder;
  fs::path dir = folder.path() / "checkpoints";
  std::string out = (folder.path() / "model").string();
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "commands accept only their own paths and flags") {
  check_has(refusal({}), {"usage", "command is missing", "list, show, verify, export, diff, prune"});
  check_has(refusal({"look", "a"}), {"usage", "unknown command: 'look'"});
  check_has(refusal({"list"}), {"usage", "list needs one path, not 0"});
  check_has(refusal({"diff", "a"}), {"usage", "diff needs two paths, not 1"});
  check_has(refusal({"export", "a"}), {"usage", "--output is missing"});
  check_has(refusal({"prune", "a"}), {"usage", "--keep is missing"});
  check_has(refusal({"list", "a", "--keep", "3"}), {"usage", "--keep applies to prune, not to list"});
  CHECK(parse_flags("ranvier-checkpoint", Flags("export a -o b"), apps::parse_checkpoint_options).output == "b");
  for (const char* command : {"list", "show", "verify", "prune"})
    check_has(
        refusal(command == std::string_view("prune") ? std::vector<std::string>{command, "nowhere", "--keep", "1"}
                                                     : std::vector<std::string>{command, "nowhere"}),
        {"data", "not found: nowhere"});
}

TEST_CASE_FIXTURE(Fixture,
                  "a list has complete and incomplete checkpoints with the reason, and those being written") {
  fs::create_directory(dir);
  check_has(run_tool({"list", dir.string()}).text, {": no complete checkpoint"});
  save(500);
  fs::remove(fs::path(save(600)) / "rank-0001.data");
  fs::create_directory(dir / "step-00000700.0a1b.part");
  std::ofstream(dir / "step-00000700.0a1b.part/rank-0000.data") << std::string(3000, 'x');
  folder.write("checkpoints/lock", "job 0a1b, process 7 on node3");
  const std::string text = run_tool({"list", dir.string()}).text;
  INFO(text);
  check_has(text, {"step-00000500", "2.5", "1 x 2", "2026-01-01",
                   "step-00000600: incomplete: ", "rank-0001.data: file not found",
                   "step-00000700.0a1b.part: 2.9 KiB so far", "last locked by job 0a1b, process 7 on node3"});
}

TEST_CASE_FIXTURE(Fixture, "one checkpoint is shown with its run, numbers, states and options") {
  save(400);
  const std::string path = save(500);
  const std::string text = run_tool({"show", path}).text;
  INFO(text);
  check_has(text, {path, "step        500", "loss        2.5", "version     0.1.0", "gpt2 2 × 16, 2 heads",
                   "weights", "--learning-rate         0.001", "step                500"});
  CHECK(run_tool({"show", dir.string()}).text == text);  // the newest
  overwrite(fs::path(path) / "manifest.json", 100, '#');
  check_has(refusal({"show", path}), {"data", "manifest.json"});
  check_has(run_tool({"show", dir.string()}).text, {"step        400"});
}

TEST_CASE_FIXTURE(Fixture, "every damaged byte of data is found, named, and sets the exit status") {
  const std::string fine = save(400), path = save(500);
  CHECK(run_tool({"verify", path}).status == 0);
  check_has(run_tool({"verify", dir.string(), "--threads", "2"}).text, {fine + ": intact", path});
  overwrite(fs::path(path) / "rank-0001.data", 4100, '\x7f');
  const auto damaged = run_tool({"verify", dir.string()});
  INFO(damaged.text);
  CHECK(damaged.status == 65);
  check_has(damaged.text, {fine + ": intact", "rank-0001.data: ", path + ": damaged in 1 place\n"});
  fs::resize_file(fs::path(path) / "rank-0001.data", 10);
  CHECK(run_tool({"verify", path}).status == 65);
  fs::remove(fs::path(path) / "manifest.json");
  const auto headless = run_tool({"verify", path});
  CHECK(headless.status == 65);
  check_has(headless.text, {"manifest.json"});
  check_has(refusal({"export", path, "-o", out}), {"data", "manifest.json"});
}

TEST_CASE_FIXTURE(Fixture, "exported weights equal the checkpoint's, in as many files as requested") {
  SmallTraining training;
  for (const int tile : {1, 4})
    for (const char* size : {"5GiB", "10KiB"}) {
      training.gpt.tile = tile;
      training.options["tile"] = std::to_string(tile);
      const auto result =
          run_tool({"export", training.save(dir).string(), "-o", out, "--file-size", size, "--overwrite"});
      check_has(result.text, {"weights of step 500", out});
      const models::Safetensors file(models::find_weights(out, "--init-from"));
      const auto units = training.units();
      models::check_weights(file, units);
      for (const models::UnitSpec& unit : units) {
        std::vector<float> values(unit.elements());
        models::read_unit(file, unit, 0, values.size(), values.data());
        for (std::size_t p = 0; p < unit.parameters.size(); ++p)
          for (std::size_t i = 0; i < unit.parameters[p].elements(); ++i)
            REQUIRE(values[unit.offset(p) + i] == training.value(unit.name, "weights", unit.offset(p) + i));
      }
      CHECK(models::layers_of(models::read_model_config(out)->sizes) == 2);
    }
  check_has(refusal({"export", dir.string(), "-o", out}), {"usage", " has a model.safetensors", "--overwrite"});
}

TEST_CASE_FIXTURE(Fixture,
                  "the tokenizer is copied if it can be read, and otherwise the user is asked to copy it") {
  SmallTraining training;
  const SmallTokenizer tokenizer;
  folder.write("tokenizer/tokenizer.json", tokenizer.tokenizer_json());
  training.options["tokenizer"] = "gpt2:" + (folder.path() / "tokenizer").string();
  const std::string path = training.save(dir).string();
  check_lacks(run_tool({"export", path, "-o", out}).text, {"copy"});
  CHECK(folder.read("model/tokenizer.json") == tokenizer.tokenizer_json());
  fs::remove_all(folder.path() / "tokenizer");
  check_has(run_tool({"export", path, "-o", out, "--overwrite"}).text, {"copy the tokenizer's files"});
}

TEST_CASE_FIXTURE(Fixture, "two checkpoints are bit-identical, or their tensors' differences are printed") {
  SmallTraining training;
  const std::string a = training.save(dir).string(), same = training.save(folder.path() / "same").string();
  const auto equal = run_tool({"diff", a, same});
  CHECK(equal.status == 0);
  check_has(equal.text, {"tensors and states are bit-identical"});
  const auto before = training.value;
  const auto units = training.units();
  const models::UnitSpec& unit =
      *std::find_if(units.begin(), units.end(), [](const auto& each) { return each.name == "h.0"; });
  const std::size_t at = unit.offset(1) + 3;
  training.value = [&](const std::string& name, const std::string& state, std::size_t i) {
    const float value = before(name, state, i);
    if (name != unit.name || i != at) return value;
    return state == "m" ? value * 1.5f : state == "v" ? std::numeric_limits<float>::quiet_NaN() : value;
  };
  training.options["learning-rate"] = "0.002";
  training.options["clip"] = "1";
  training.step = 600;
  const auto other = run_tool({"diff", a, training.save(dir).string()});
  INFO(other.text);
  CHECK(other.status == 1);
  check_has(other.text, {"step 500 | 600", "--learning-rate", "0.001 | 0.002", "--clip", "(none) | 1",
                         "relative 0.333", "at most by inf"});
  check_has(other.text, {"m       " + unit.parameters[1].name, "v       " + unit.parameters[1].name});
  check_lacks(other.text, {"weights " + unit.parameters[1].name});
  const SmallTraining without_v{.states = {"weights", "m"}};
  const auto sgd = run_tool({"diff", a, without_v.save(folder.path() / "sgd").string()});
  CHECK(sgd.status == 1);
  check_has(sgd.text, {"v       h.0: only in the first"});
  check_lacks(sgd.text, {"m       h.0"});
  training.gpt.layers = 3;
  const auto larger = run_tool({"diff", a, training.save(folder.path() / "larger").string()});
  CHECK(larger.status == 1);
  check_has(larger.text, {"only in the second"});
}

TEST_CASE_FIXTURE(Fixture, "older checkpoints, except archived ones, are removed, or listed in a dry run") {
  for (const std::int64_t step : {100, 200, 300, 400}) save(step);
  const std::vector<std::string> keep_one{"prune", dir.string(), "--keep", "1", "--archive-every", "200"};
  auto dry = keep_one;
  dry.push_back("--dry-run");
  check_has(run_tool(dry).text, {"would remove " + (dir / "step-00000300").string(), "step-00000100"});
  CHECK(fs::exists(dir / "step-00000100"));
  {
    offload::CheckpointFolder job(dir);
    job.lock("0a1b");
    check_has(refusal(keep_one), {"io", "another job writes checkpoints there"});
    CHECK(fs::exists(dir / "step-00000100"));
  }
  check_has(run_tool(keep_one).text, {"removed " + (dir / "step-00000300").string()});
  for (const auto& [step, there] : {std::pair{100, false}, {200, true}, {300, false}, {400, true}})
    CHECK(fs::exists(dir / fmt::format("step-{:08}", step)) == there);
  check_has(run_tool(keep_one).text, {"nothing to remove"});
}

TEST_CASE_FIXTURE(Fixture, "a manifest's model is used only if its arrays match") {
  SmallTraining training;
  training.options["tile"] = "7";
  check_has(refusal({"export", training.save(dir).string(), "-o", out}), {"data", "--tile of its run is '7'"});
  offload::Manifest manifest;
  manifest.about["config"] = models::model_config_json(training.gpt);
  const auto model = [&] { return printed_error_of([&] { static_cast<void>(apps::saved_model(manifest, "c")); }); };
  CHECK(says(model(), "c: config.json has 2 layers, but the checkpoint has 0 arrays"));
  manifest.arrays.assign(9, {"h.0", "weights", runtime::DType::f32, 3});
  CHECK(says(model(), "c: no weights of"));
  for (auto& array : manifest.arrays) array.unit = training.units()[0].name;
  CHECK(says(model(), "but config.json needs"));
  manifest.about["config"] = "{\"model_type\":";
  CHECK(says(model(), "c/config.json: not JSON"));
  manifest.about.erase("config");
  CHECK_FALSE(apps::saved_model(manifest, "c"));
  CHECK_FALSE(fs::exists(out));
}
