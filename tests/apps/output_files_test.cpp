#include "apps/files/output_files.hpp"

#include "tests/apps/printed_errors.hpp"

#include <fmt/core.h>

#include <sys/stat.h>

#include <cerrno>

using namespace ranvier;
using namespace ranvier::tests;
using apps::check_outputs;
namespace fs = std::filesystem;

namespace {

struct Fixture : InFolder {
  apps::TrainOptions options;

  Fixture() { options.data.data = folder.write("text.txt", "text").string(); }

  void check_refused(std::initializer_list<std::string_view> words) const {
    check_usage_error(words, [&] { check_outputs(options); });
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "outputs with separate paths are accepted, in any folder, and so are devices") {
  options.run.save = file("model");
  options.run.metrics = file("model/metrics.jsonl");
  options.run.trace = file("trace.json");
  check_outputs(options);
  options.run.metrics = options.run.trace = "/dev/null";
  check_outputs(options);
}

TEST_CASE_FIXTURE(Fixture, "a path names a weights file only by its extension") {
  for (const char* save : {"outs/llama-3.1-ft", "run.2026", "model"})
    CHECK(apps::weights_path(save) == fs::path(save) / "model.safetensors");
  for (const char* save : {"weights.safetensors", "llama-3.1.bin"}) CHECK(apps::weights_path(save) == save);
}

TEST_CASE_FIXTURE(Fixture, "outputs of another run are replaced only with --overwrite") {
  const auto check_kept = [&](const std::string& flag, const std::string& path) {
    check_usage_error({flag, path + "; add --overwrite"}, [&] { apps::check_replaced(options); });
    options.run.overwrite = true;
    apps::check_replaced(options);
    options.run.overwrite = false;
  };
  options.run.save = file("model");
  options.run.trace = file("trace.json");
  options.run.metrics = folder.write("metrics.jsonl", "{}\n").string();
  apps::check_replaced(options);  // metrics of several runs share a file
  folder.write("trace.json", "{}");
  check_kept("--trace", "trace.json");
  options.run.trace.clear();
  options.run.save_every = 5;
  folder.write("model/weights-00000005/config.json", "{}");
  check_kept("--save-every 5", "weights-00000005");
  options.checkpoint.resume = "auto";  // an attempt that ended before its first checkpoint is repeated
  apps::check_replaced(options);
  options.run.save_every = 0;
  apps::check_replaced(options);
  folder.write("model/model.safetensors", "x");
  check_kept("--save " + file("model"), "model.safetensors");
}

TEST_CASE_FIXTURE(Fixture, "two outputs to one file are refused, also through dots and links") {
  folder.write("log", "");
  fs::create_symlink("log", file("link"));
  fs::create_hard_link(file("log"), file("hard"));
  options.run.metrics = file("log");
  for (const auto* other : {"log", "./log", "link", "hard", "none/../log"}) {
    CAPTURE(other);
    options.run.trace = file(other);
    check_refused({"--metrics " + file("log"), "--trace " + file(other), "would both write"});
  }
  options.run.trace = file("model/config.json");
  options.run.save = file("model");
  check_refused({"--save " + file("model"), "--trace "});
}

TEST_CASE_FIXTURE(Fixture, "one path as a file and as a folder is refused") {
  options.run.save = file("model");
  options.run.metrics = file("model");
  check_refused({"--save " + file("model"), "--metrics " + file("model"), "as file and as folder"});
}

TEST_CASE_FIXTURE(Fixture, "an output over an input is refused with both names") {
  const auto check_input = [&](const char* name, const std::function<std::string&(apps::TrainOptions&)>& field) {
    CAPTURE(name);
    const std::string path = folder.write("input", "").string();
    field(options) = path;
    options.run.metrics = file("./input");
    check_refused({"--metrics " + file("./input"), std::string(name) + ' ', "would overwrite"});
    field(options).clear();
  };
  check_input("--hellaswag", [](auto& o) -> std::string& { return o.data.hellaswag; });
  check_input("--tokenizer", [](auto& o) -> std::string& { return o.data.gpt2; });
  check_input("--links", [](auto& o) -> std::string& { return o.shard.links; });
  check_input("--config", [](auto& o) -> std::string& { return o.run.config; });
  check_input("--products-file", [](auto& o) -> std::string& { return o.device.products_file; });
  check_input("--init-from", [](auto& o) -> std::string& { return o.run.init_from; });
  options.data.data = file("a.bin") + ":0.5," + file("b.bin") + ":0.5";
  options.run.metrics = file("b.idx");
  check_refused({"--data " + file("b.bin"), file("b.idx")});
}

TEST_CASE_FIXTURE(Fixture, "an output in a data folder is refused, because the next run would train on it") {
  fs::create_directory(file("texts"));
  options.data.data = file("texts");
  options.run.metrics = file("texts/run.jsonl");
  check_refused({"--metrics", "--data " + file("texts"), "train on it"});
  options.data.reading.format = models::TokenFormat::llmc;
  check_outputs(options);
}

TEST_CASE_FIXTURE(Fixture, "checkpoints in a data folder, or at the path of another output, are refused") {
  options.data.data = folder.path().string();
  options.checkpoint.folder = file("checkpoints");
  check_refused({"--checkpoint " + file("checkpoints") + " is inside --data " + options.data.data});
  options.data.data = file("text.txt");
  check_outputs(options);
  options.run.metrics = file("checkpoints");
  check_refused({"--metrics " + file("checkpoints"), "--checkpoint", "as file and as folder"});
}

TEST_CASE_FIXTURE(Fixture, "weights replace the initial ones only with --overwrite") {
  fs::create_directory(file("model"));
  folder.write("model/model.safetensors", "");
  options.run.save = options.run.init_from = file("model");
  check_refused({"--save " + file("model"), "--init-from " + file("model"), "--overwrite"});
  options.run.overwrite = true;
  check_outputs(options);
  folder.write("model/metrics.jsonl", "{}");
  options.run.metrics = file("model/metrics.jsonl");
  check_outputs(options);
  folder.write("model/vocab.json", "{}");
  options.run.metrics = file("model/vocab.json");
  check_refused({"--metrics", "--init-from"});
}

TEST_CASE_FIXTURE(Fixture, "an unsuitable path for weights is refused") {
  options.run.save = "/";
  check_refused({"--save /", "root of the file system"});
  options.run.save = "/tmp/..";
  check_refused({"root of the file system"});
  options.run.save = folder.write("file", "").string();
  check_refused({"--save " + file("file") + " is a file", "file.safetensors"});
}

TEST_CASE_FIXTURE(Fixture,
                  "outputs get their folder, and leftovers of a killed save are removed before the first step") {
  fs::create_directory(file("model"));
  folder.write("model/model.safetensors.123.partial", "half of the weights");
  options.run.save = file("model");
  apps::prepare_outputs(options);
  CHECK(fs::is_empty(file("model")));
  options.run.save = file("new/model");
  apps::prepare_outputs(options);
  CHECK(fs::is_empty(file("new/model")));
}

TEST_CASE_FIXTURE(Fixture, "weights that exceed the disk space are refused with needed and free bytes") {
  options.run.save = file("model.safetensors");
  apps::check_space(options.run.save, 1);
  const Error error = printed_error_of([&] { apps::check_space(options.run.save, std::size_t{1} << 60); });
  check_has(error.what(), {" needs 1.0 EiB", fs::canonical(folder.path()).string() + " has only ", "; free "});
}

TEST_CASE_FIXTURE(Fixture, "a save waits for a missing folder, creates it, and gives up after its time") {
  using namespace std::chrono_literals;
  apps::DiskRetry patient(30s, "the weights take", 1 << 20);
  CHECK(patient(file("gone/model"), ENOENT));
  CHECK(fs::is_directory(file("gone")));
  apps::DiskRetry hasty(0s, "the weights take", 1 << 20);
  CHECK_FALSE(hasty(file("gone/model"), ENOSPC));
}

TEST_CASE_FIXTURE(Fixture, "weights of many ranks need a folder, not a device") {
  options.run.save = file("pipe.safetensors");
  REQUIRE(::mkfifo(options.run.save.c_str(), 0600) == 0);
  CHECK(says(printed_error_of([&] { apps::check_outputs(options); }), "device or pipe: " + options.run.save));
  options.run.save = file("weights.safetensors");
  options.run.save_every = 10;
  CHECK(says(printed_error_of([&] { apps::check_outputs(options); }), "--save-every 10 needs a folder"));
  options.run.save = file("model");
  apps::check_outputs(options);
  options.run.save.clear();
  CHECK(says(printed_error_of([&] { apps::check_outputs(options); }), "--save-every 10 needs a folder"));
}
