#include "apps/files/train_job.hpp"

#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::data_report;

namespace {

apps::TrainOptions options_of(std::int64_t steps, int batch, int length) {
  apps::TrainOptions options;
  options.trainer.steps = steps;
  options.trainer.batch_size = batch;
  options.model.gpt().sequence_length = length;
  return options;
}

}  // namespace

TEST_CASE("before training the data, the epochs of the steps, and skipped data are printed") {
  const TemporaryFolder folder;
  folder.write("d/a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  folder.write("d/b.txt", std::string(12'000, 'b') + "\xff");
  folder.write("d/c.png", "\x89PNG\r\n");
  const auto path = (folder.path() / "d").string();
  const auto data = models::open_text_data({.path = path, .sequence_length = 10, .validation_split = 0.1});
  CHECK(data_report(data, options_of(1500, 4, 10), nullptr) ==
        "data: 2 files, 3 documents, 12k tokens; 1,080 samples of 10 per epoch, 1,500 steps × 4 samples are 5.56 "
        "epochs\n"
        "held out for validation: 119 samples\n" +
            path + ": skipped 1 file: c.png (an image (PNG))\n" + path +
            "/b.txt: 1 of the 12001 bytes examined are not UTF-8, the first at offset 12000");
}

TEST_CASE("for a mixture the epochs per path are printed, and for an evaluation the samples") {
  const TemporaryFolder folder;
  const auto a = folder.write("a.txt", std::string(101, 'a')).string(),
             b = folder.write("b.txt", std::string(1001, 'b')).string();
  const models::TextDataOptions mixture{.mixture = {{a, 1}, {b, 3}}, .sequence_length = 10};
  CHECK(data_report(models::open_text_data(mixture), options_of(10, 4, 10), nullptr) ==
        "data: 2 files, 2 documents, 1.1k tokens; 110 samples of 10 per epoch, 10 steps × 4 samples:\n"
        "  25% of " +
            a +
            ": 1 file, 1 document, 101 tokens; 10 samples, 1 epoch\n"
            "  75% of " +
            b + ": 1 file, 1 document, 1k tokens; 100 samples, 0.3 epochs");
  auto options = options_of(10, 4, 10);
  options.data.eval_only = true;
  CHECK(data_report(models::open_text_data({.path = a, .sequence_length = 10, .validates_all = true}), options,
                    nullptr) == "data: 1 file, 1 document, 101 tokens; 10 samples of 10 to evaluate");
}

TEST_CASE("the report has both ends of the first sample, as tokens and as text") {
  const TemporaryFolder folder;
  const models::Tokenizer bytes;
  const auto told = [&](const std::string& text, models::TextDataOptions data) {
    data.path = folder.write("a.txt", text);
    data.sequence_length = static_cast<int>(text.size()) - 1;
    const std::string report =
        data_report(models::open_text_data(data), options_of(1, 1, data.sequence_length), &bytes);
    return report.substr(report.find("first sample"));
  };
  CHECK(told("a\n\"\xff", {}).starts_with(R"(first sample: 97 "a", 10 "\n", 34 "\"", 255 "\xff")"));
  CHECK(told("0123456789abcdefg", {.shuffle_seed = 1}) ==
        R"(first sample: 48 "0", 49 "1", 50 "2", 51 "3", 52 "4", 53 "5", 54 "6", 55 "7", …, )"
        R"(57 "9", 97 "a", 98 "b", 99 "c", 100 "d", 101 "e", 102 "f", 103 "g")");
}
