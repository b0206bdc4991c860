#include "models/text/document_reader.hpp"

#include "tests/models/compressed.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

using Documents = std::vector<std::string>;

struct Fixture {
  TemporaryFolder folder;

  Documents read(const std::string& name, const std::string& content, std::size_t piece = 64,
                 const std::string& field = "text") const {
    DocumentReader reader(recognise(folder.write(name, content), {}), {.json_field = field});
    Documents documents;
    for (auto pieces = reader.next(piece); !pieces.empty(); pieces = reader.next(piece))
      for (const auto& one : pieces) {
        if (one.begins) documents.emplace_back();
        documents.back() += one.text;
      }
    return documents;
  }
  void refused(const std::string& content, const std::string& words) const {
    CHECK(says(error_of([&] { read("a.jsonl", content); }), ErrorCode::data, words));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a text is one document, with any compression and split into any pieces") {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i) + (i % 7 == 0 ? "\n\n" : " ");
  text += std::string(300, 'x');
  for (const std::size_t piece : {7, 64, 100'000}) {
    CHECK((read("a.txt", text, piece) == Documents{text}));
    CHECK((read("a.txt.gz", gzipped(text), piece) == Documents{text}));
    CHECK((read("a.txt.zst", zstd_packed(text), piece) == Documents{text}));
  }
}

TEST_CASE_FIXTURE(Fixture, "each of JSON lines is a document, except those without text") {
  const std::string lines =
      "\xef\xbb\xbf{\"text\": \"one\\n\\u00e4\", \"id\": [1, {}]}\r\n"
      "\n"
      "{\"text\": \"\"}\n"
      "  {\"id\": 3, \"text\": \"two\"}\n"
      "{\"text\": \"three\"}";
  const Documents documents{"one\nä", "two", "three"};
  CHECK(read("a.jsonl", lines) == documents);
  CHECK(read("a.jsonl.gz", gzipped(lines)) == documents);
  CHECK(read("b.jsonl", "{\"content\": \"x\"}\n", 64, "content") == Documents{"x"});
  const std::string book(5'000'000, 'b');
  CHECK((read("long.jsonl", "{\"text\": \"" + book + "\"}\n{\"text\": \"y\"}\n") == Documents{book, "y"}));
}

TEST_CASE_FIXTURE(Fixture, "a line that is not a document is refused by file and number") {
  const std::string good = "{\"text\": \"x\"}\n";
  refused(good + good + "{\"text\": \"x\"\n" + good, "a.jsonl: line 3: not JSON: ");
  refused(good + "\n[1]\n", "a.jsonl: line 3: the line is not a JSON object; use jq -c");
  refused(good + "{\"id\": 1, \"content\": \"x\"}\n",
          "a.jsonl: line 2: field 'text' is missing, found 'id', 'content'; name the field of the text with "
          "`json_field`");
  refused("{\"text\": null}\n", "a.jsonl: line 1: field 'text' is not text");
  refused("{}\n", "found none");
  refused("{\"text\": \"\xff\"}\n", "a.jsonl: line 1: byte 0xff at offset 10 of the line is not UTF-8; use iconv");
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += good;
  refused(many + "oops\n", "a.jsonl: line 200001: not JSON");
}

TEST_CASE_FIXTURE(Fixture, "a chat is refused with the supported format, and with the command that converts it") {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})";
  for (const char* field : {"text", "messages"}) {
    const auto error = error_of([&] { read("chat.jsonl", chat + '\n', 64, field); });
    CHECK(says(error, "chat.jsonl: line 1: chats ('messages') are not supported; "));
    CHECK(says(error, "`prompt_field` prompt `json_field` completion; convert: jq -c '.messages as $all"));
  }
  refused(R"({"conversations": [{"from": "human", "value": "Hi"}]})",
          R"(map(.from + ": " + .value + "\n") | add) + "gpt: "), completion: $all[.].value}')");
  refused(R"({"messages": 3})", "field 'text' is missing, found 'messages'");
}

TEST_CASE_FIXTURE(Fixture, "a reader continues at the position of another one") {
  std::string lines, text;
  for (int i = 0; i < 500; ++i) {
    lines += "{\"text\": \"" + std::to_string(i) + "\"}\n";
    text += "word " + std::to_string(i);
  }
  for (const auto& [name, content] : {std::pair{std::string("a.jsonl"), lines},
                                      {"b.jsonl.zst", zstd_packed(lines)},
                                      {"c.txt", text},
                                      {"d.txt.gz", gzipped(text)}}) {
    CAPTURE(name);
    const DataFile file = recognise(folder.write(name, content), {});
    DocumentReader whole(file, {});
    for (int i = 0; i < 40; ++i) CHECK(!whole.next(20).empty());
    DocumentReader later(file, {}, whole.offset());
    for (bool more = true; more;) {
      const auto expected = whole.next(20), got = later.next(20);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].text == expected[i].text);
        CHECK(got[i].begins == expected[i].begins);
      }
      more = !expected.empty();
    }
    CHECK(later.offset() == whole.offset());
  }
}
