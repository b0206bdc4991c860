#include "models/text/labelled_source.hpp"
#include "models/text/text_source.hpp"
#include "tests/models/text_samples.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

constexpr int T = 6;

TextDataOptions options_of(const std::filesystem::path& path, std::vector<std::string> labels) {
  return {.path = path,
          .reading = {.label_field = "kind"},
          .labels = std::move(labels),
          .sequence_length = T,
          .vocab_size = 256,
          .documents = Documents::pad};
}

constexpr const char* lines = R"({"text": "abc", "kind": "loud"}
{"kind": "calm", "text": "abcdefgh"}
{"text": "", "kind": "calm"}
{"text": "x", "kind": "loud", "more": [1]}
)";

}  // namespace

TEST_CASE("labelled texts are a sample each, truncated and padded, with the number of their class") {
  const TemporaryFolder folder;
  const auto path = folder.write("texts.jsonl", lines);
  const TextReading reading{.label_field = "kind"};
  const std::vector<std::string> labels = labels_in(path, reading, 9);
  CHECK(labels == std::vector<std::string>{"calm", "loud"});
  const TextData data = open_text_data(options_of(path, labels));
  const SampleSource& source = *data.training;
  REQUIRE(source.samples() == 3);  // the empty one is skipped
  CHECK(source.sample_bytes().input == T * sizeof(std::int32_t));
  CHECK(source.sample_bytes().target == sizeof(std::int32_t));
  CHECK(source.losses(0, 3) == 3);
  CHECK(inputs(source, 0) == Tokens{'a', 'b', 'c', 0, 0, 0});
  CHECK(inputs(source, 1) == Tokens{'a', 'b', 'c', 'd', 'e', 'f'});
  CHECK(inputs(source, 2) == Tokens{'x', 0, 0, 0, 0, 0});
  CHECK(inputs(source, 3) == inputs(source, 0));  // one epoch later
  CHECK(targets(source, 0)[0] == 1);
  CHECK(targets(source, 1)[0] == 0);
  CHECK(targets(source, 2)[0] == 1);
  CHECK(source.padding(2) == 5);
  CHECK(starts(source, 0, 2) == Tokens{0, 0, 0, 3, 4, 5, 0, 0, 0, 0, 0, 0});
  REQUIRE(data.origins.size() == 1);
  REQUIRE(data.origins[0].remarks.size() == 3);
  CHECK(data.origins[0].remarks[0].ends_with("empty field 'text': 1 of 4"));
  CHECK(data.origins[0].remarks[1].find("2 classes: calm 1, loud 2") != std::string::npos);
  CHECK(data.origins[0].remarks[2].find(
            "44.4% of all positions are padding; truncated at `sequence_length` 6: 1 of 3") != std::string::npos);
}

TEST_CASE_FIXTURE(InFolder, "labels are names or numbers of classes") {
  const auto labels = [&](const std::string& text) {
    return labels_in(folder.write("texts.jsonl", text), {.label_field = "kind"}, 20);
  };
  using Names = std::vector<std::string>;
  CHECK(labels(R"({"text": "a", "kind": 10}
{"text": "b", "kind": 2})") == Names{"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4", "LABEL_5", "LABEL_6",
                                     "LABEL_7", "LABEL_8", "LABEL_9", "LABEL_10"});
  CHECK(labels(R"({"text": "a", "kind": true}
{"text": "b", "kind": false})") == Names{"false", "true"});
  CHECK(labels(R"({"text": "a", "kind": "01"}
{"text": "b", "kind": 1})") == Names{"01", "1"});
  const Names names{"bad", "good"};
  CHECK(class_of("good", names) == 1);
  CHECK(class_of("0", names) == 0);
  CHECK_FALSE(class_of("2", names).has_value());
  CHECK_FALSE(class_of("-1", names).has_value());
  CHECK_FALSE(class_of("00", names).has_value());
  CHECK_FALSE(class_of("Good", names).has_value());
}

TEST_CASE_FIXTURE(InFolder, "invalid labelled texts are refused with the reason") {
  const auto refusal = [&](const std::string& name, const std::string& text, int length = T) {
    TextDataOptions options = options_of(folder.write(name, text), {"calm", "loud"});
    options.sequence_length = length;
    return refusal_of(options);
  };
  CHECK(says(refusal("a.txt", "some words"), "`label_field` kind needs JSON lines"));
  const Error unknown = refusal("b.jsonl", R"({"text": "a", "kind": "wild"})");
  CHECK(says(unknown, ErrorCode::data, "label 'wild' is not one of the model's 2 classes, 'calm', 'loud'"));
  CHECK(says(
      refusal("c.jsonl", R"({"text": "a", "class": "loud"})"),
      "line 1: field 'kind' is missing, found 'text', 'class'; name the field of the label with `label_field`"));
  for (const char* label : {"null", "1.5", "[]", "\"\""})
    CHECK(says(refusal("d.jsonl", R"({"text": "a", "kind": )" + std::string(label) + "}"),
               "line 1: field 'kind' is not a label"));
  CHECK(says(refusal("e.jsonl", R"({"text": "", "kind": "loud"})"), "no line has text"));
  const auto many = folder.write("f.jsonl", lines);
  CHECK(says(error_of([&] { static_cast<void>(labels_in(many, {.label_field = "kind"}, 1)); }),
             "more than 1 different labels"));
}
