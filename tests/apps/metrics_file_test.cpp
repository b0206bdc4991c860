#include "apps/files/metrics_file.hpp"

#include "tests/apps/printed_errors.hpp"

#include <sys/stat.h>

using namespace ranvier;
using namespace ranvier::tests;

namespace {

struct Fixture : InFolder {
  apps::TrainOptions options;
};

}  // namespace

TEST_CASE_FIXTURE(
    Fixture,
    "metrics are appended to the metrics of earlier runs, with a line between them, or start from scratch") {
  options.run.metrics = file("metrics.jsonl");
  options.run.init_from = "a \"model\"";
  apps::open_metrics(options)->append("{\"step\":1}\n");
  CHECK(folder.read("metrics.jsonl") == "{\"step\":1}\n");
  apps::open_metrics(options)->append("{\"step\":1}\n");
  const std::string text = folder.read("metrics.jsonl");
  CHECK(text.starts_with("{\"step\":1}\n{\"run\":{\"began\":\"20"));
  CHECK(text.ends_with("\"init_from\":\"a \\\"model\\\"\"}}\n{\"step\":1}\n"));
  options.run.overwrite = true;
  apps::open_metrics(options)->append("{\"step\":1}\n");
  CHECK(folder.read("metrics.jsonl") == "{\"step\":1}\n");
  options.run.overwrite = false;
  options.run.metrics = folder.write("model.bin", "something else").string();
  const Error error = printed_error_of([&] { static_cast<void>(apps::open_metrics(options)); });
  CHECK(says(error, "has no metrics: " + file("model.bin")));
  CHECK(folder.read("model.bin") == "something else");
}

TEST_CASE_FIXTURE(Fixture, "a run that resumes from a checkpoint appends to the lines up to it") {
  options.run.metrics = file("metrics.jsonl");
  const std::string before = "{\"step\":1}\n{\"step\":9}\n";  // another run's lines
  folder.write("metrics.jsonl", before);
  {
    const auto log = apps::open_metrics(options, {.training = "a1"});
    log->append("{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"sample\":\"\"}\n{\"checkpoint\":2,\"bytes\":1}\n");
    log->append("{\"checkpoint\":3}\n{\"other\":1}\n{\"step\":4,\"lo");
  }
  const std::string first = folder.read("metrics.jsonl");
  const std::string line = first.substr(before.size(), first.find('\n', before.size()) + 1 - before.size());
  CHECK(line.ends_with("\"training\":\"a1\"}}\n"));
  const std::string kept =
      before + line + "{\"step\":1}\n{\"step\":2}\n{\"checkpoint\":2,\"bytes\":1}\n{\"other\":1}\n";
  apps::open_metrics(options, {"a1", 2, "c/step-00000002"})->append("{\"step\":3}\n");
  std::string text = folder.read("metrics.jsonl");
  CHECK(text.starts_with(kept + "{\"run\":{\"began\":\"20"));
  CHECK(text.ends_with(
      "\"training\":\"a1\",\"resumed_step\":2,\"checkpoint\":\"c/step-00000002\"}}\n{\"step\":3}\n"));
  // An earlier checkpoint of the run; --overwrite does not apply to resumed metrics.
  options.run.overwrite = true;
  static_cast<void>(apps::open_metrics(options, {"a1", 1, "c/step-00000001"}));
  text = folder.read("metrics.jsonl");
  CHECK(text.starts_with(before + line + "{\"step\":1}\n{\"other\":1}\n{\"run\":{"));
  check_lacks(text, {"\"resumed_step\":2"});
}

TEST_CASE_FIXTURE(Fixture, "a run that was killed before its first checkpoint starts its lines from scratch") {
  options.run.metrics = file("metrics.jsonl");
  apps::open_metrics(options, {.training = "a1"})->append("{\"step\":1}\n{\"step\":2}\n");
  apps::open_metrics(options, {.training = "a1"})->append("{\"step\":1}\n");
  const std::string text = folder.read("metrics.jsonl");
  check_lacks(text, {"{\"step\":2}"});
  CHECK(text.find("{\"step\":1}") == text.rfind("{\"step\":1}"));
}

TEST_CASE_FIXTURE(Fixture, "metrics without lines to remove stay the same file") {
  const std::string path =
      folder.write("metrics.jsonl", "{\"run\":{\"training\":\"a1\"}}\n{\"step\":1}\n").string();
  struct stat first{}, second{};
  REQUIRE(::stat(path.c_str(), &first) == 0);
  CHECK(apps::drop_later_metrics(path, "a1", 1) == 0);
  CHECK(apps::drop_later_metrics(path, "b2", 0) == 0);
  REQUIRE(::stat(path.c_str(), &second) == 0);
  CHECK(first.st_ino == second.st_ino);
  CHECK(apps::drop_later_metrics(path, "a1", 0) == 1);
  CHECK(folder.read("metrics.jsonl") == "{\"run\":{\"training\":\"a1\"}}\n");
}
