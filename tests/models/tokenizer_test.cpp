#include "models/tokenizers/text_encoder.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "models/tokenizers/tokenizer_json.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

using Tokens = std::vector<std::int32_t>;
using Words = std::vector<std::string>;

/// Characters that are easily confused with another kind.
const std::map<char32_t, char> kinds = {
    {0x85, 'b'},   {0xa0, 'b'},  {0x2003, 'b'}, {0x2028, 'b'},  {0x3000, 'b'},  {0x1680, 'b'}, {0x180e, 'o'},
    {0x200b, 'o'}, {0x301, 'o'}, {0xfeff, 'o'}, {0x1f600, 'o'}, {0x1f3fd, 'o'}, {0xb2, 'n'},   {0x2167, 'n'},
    {0x663, 'n'},  {0xe9, 'l'},  {0x4e2d, 'l'}, {0x4e00, 'l'},  {0xaa, 'l'},    {0x2b0, 'l'},  {0x416, 'l'},
};

struct Fixture {
  TemporaryFolder folder;
  SmallTokenizer small;

  Tokenizer openai() const {
    folder.write("gpt2/encoder.json", small.encoder_json());
    folder.write("gpt2/vocab.bpe", small.vocab_bpe());
    return read_tokenizer(folder.path() / "gpt2");
  }
  static Error refusal_of(const std::filesystem::path& path) {
    return error_of([&] { static_cast<void>(read_tokenizer(path)); });
  }
  Error refusal(const std::string& name, const std::string& content) const {
    const auto path = folder.write(name, content);
    return refusal_of(path.extension() == ".bpe" ? path.parent_path() : path);
  }
};

Tokens encode(const Tokenizer& tokenizer, const std::string& text,
              SpecialTokenPolicy specials = SpecialTokenPolicy::text) {
  return tokenizer.encode(text, specials);
}

Words words_of(std::string_view text) {
  WordSplitter splitter;
  splitter.start(text);
  Words words;
  for (auto word = splitter.next(); !word.empty(); word = splitter.next()) words.emplace_back(word);
  return words;
}

/// Characters of all kinds, runs of some, and invalid UTF-8 bytes.
std::string random_text(std::mt19937_64& random, std::size_t pieces) {
  static const Words parts = {
      "the",  " the",     " world",       "'s",           "'re",      "'ll",  "'",    "123",
      " ",    "  ",       "\n",           "\t",           "\r\n",     "aaaa", "!",    "<|endoftext|>",
      "\xff", "\xe4\xb8", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\x80", "\x1c", "\x01", "ing"};
  std::string text;
  while (pieces-- > 0) {
    std::string part;
    const auto pick = random() % (parts.size() + kinds.size());
    if (pick < parts.size())
      part = parts[pick];
    else
      append_utf8(std::next(kinds.begin(), static_cast<std::ptrdiff_t>(pick - parts.size()))->first, part);
    for (auto times = random() % 16 == 0 ? random() % 120 : 1; times > 0; --times) text += part;
  }
  return text;
}

}  // namespace

TEST_CASE("text is split into words like GPT-2's") {
  CHECK(words_of("").empty());
  CHECK(words_of("Hello world, it's 2024!") == Words{"Hello", " world", ",", " it", "'s", " 2024", "!"});
  CHECK(words_of("we'll've 'S") == Words{"we", "'ll", "'ve", " '", "S"});
  CHECK(words_of("a   b\n\n  c \n") == Words{"a", "  ", " b", "\n\n ", " c", " \n"});
  CHECK(words_of("a\tb") == Words{"a", "\t", "b"});
  CHECK(words_of("x\u00a0\u00a0y") == Words{"x", "\u00a0", "\u00a0", "y"});
  CHECK(words_of("中文。１２ \u3000x") == Words{"中文", "。", "１２", " ", "\u3000", "x"});
  CHECK(words_of("a\u180e b") == Words{"a", "\u180e", " b"});
  CHECK(words_of("ok\xff\xfe ok \xe4\xb8") == Words{"ok", "\xff\xfe", " ok", " \xe4\xb8"});
}

TEST_CASE("words of random text equal the words of a plain implementation of the expression") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_text(random, 1 + random() % 60);
    CAPTURE(text);
    CHECK(words_of(text) == SmallTokenizer::words(text, kinds));
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "random bytes and characters become the tokens of a plain encoder, and decode to themselves") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Tokenizer tokenizer = openai();
  CHECK(tokenizer.size() == small.end_of_text() + 1);
  const auto encoder = tokenizer.encoder(SpecialTokenPolicy::text);
  for (int i = 0; i < effort(200, 200, 25); ++i) {
    const std::string text = random_text(random, 1 + random() % 100);
    Tokens tokens;
    encoder->encode(text, true, tokens);
    CHECK(tokens == small.encoded(text, kinds));
    CHECK(tokenizer.decode(tokens) == text);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "words of any length get the same tokens as with plain merging, and long ones within a moment") {
  const Tokenizer tokenizer = openai();
  for (const std::size_t length : {1, 2, 5, 37, 38, 39, 40, 191, 192, 193, 194, 500})
    for (const char* unit : {"a", "ab", "the", "中", "aaaab"}) {
      std::string word;
      while (word.size() < length) word += unit;
      CAPTURE(word);
      CHECK(encode(tokenizer, word) == small.encoded(word, kinds));
    }
  // Searching all parts for each merge would take hours.
  const std::string endless(static_cast<std::size_t>(effort(2'000'000, 2'000'000, 200'000)), 'a');
  const Tokens tokens = encode(tokenizer, endless);
  CHECK(tokens == Tokens(endless.size() / 4, encode(tokenizer, "aaaa").front()));
}

TEST_CASE_FIXTURE(Fixture, "every kind of tokenizer file gives the same tokens") {
  const Tokenizer one = openai();
  folder.write("names/vocab.json", small.encoder_json());
  folder.write("names/merges.txt", small.vocab_bpe());
  folder.write("hugging/tokenizer.json", small.tokenizer_json());
  folder.write("pairs/tokenizer.json", small.tokenizer_json(true));
  folder.write("ranks/small.tiktoken", small.tiktoken());
  std::mt19937_64 random(7);
  const std::string text = random_text(random, 2000);
  for (const char* path :
       {"names", "hugging", "hugging/tokenizer.json", "pairs", "ranks", "ranks/small.tiktoken"}) {
    CAPTURE(path);
    const Tokenizer other = read_tokenizer(folder.path() / path);
    CHECK(other.size() == one.size());
    CHECK(other.end_of_text() == one.end_of_text());
    CHECK(encode(other, text) == encode(one, text));
  }
}

TEST_CASE_FIXTURE(Fixture, "text that spells the end of text gives its token only on request") {
  const Tokenizer tokenizer = openai();
  const std::string text = "the<|endoftext|><|endoftext|> world<|endoftext";
  CHECK(encode(tokenizer, text) == small.encoded(text));
  Tokens expected = small.encoded("the");
  expected.insert(expected.end(), 2, *tokenizer.end_of_text());
  for (const std::int32_t token : small.encoded(" world<|endoftext")) expected.push_back(token);
  CHECK(encode(tokenizer, text, SpecialTokenPolicy::tokenizer) == expected);
  std::string spelled;
  for (const std::int32_t token : expected) spelled += tokenizer.spelled(token);
  CHECK(spelled == text);
  CHECK(tokenizer.decode(expected) == "the world<|endoftext");
}

TEST_CASE_FIXTURE(Fixture, "several threads give the tokens of one thread") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Tokenizer tokenizer = openai();
  const auto much = static_cast<std::size_t>(effort(200'000, 200'000, 70'000));  // longer than a piece
  std::string text = random_text(random, much * 3 / 10);
  text += std::string(much, 'a') + " " + std::string(much, ' ') + "b";  // no split point for a long distance
  text += random_text(random, much / 10);
  for (const auto specials : {SpecialTokenPolicy::text, SpecialTokenPolicy::tokenizer}) {
    if (test::sanitized && specials == SpecialTokenPolicy::text) continue;
    const Tokens expected = encode(tokenizer, text, specials);
    for (const int threads : {1, 2, 3}) {
      TextEncoder encoder(tokenizer, threads, specials);
      Tokens tokens;
      for (int again = 0; again < 2; ++again) {
        tokens.clear();
        encoder.encode(text, tokens);
        CHECK(tokens == expected);
      }
      encoder.encode("", tokens);
      CHECK(tokens.size() == expected.size());
    }
  }
}

TEST_CASE("splitting a text at allowed offsets never changes a word") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 50; ++i) {
    const std::string text = random_text(random, 40);
    const Words whole = words_of(text);
    for (std::size_t cut = last_cut(text, text.size()); cut > 0; cut = last_cut(text, cut - 1)) {
      CAPTURE(cut);
      Words both = words_of(text.substr(0, cut));
      for (auto& word : words_of(text.substr(cut))) both.push_back(word);
      CHECK(both == whole);
      CHECK(first_cut(text, cut) == cut);
      CHECK(last_cut(text, cut) == cut);
    }
  }
  CHECK(last_cut("ab cd", 5) == 2);
  CHECK(last_cut("ab cd", 1) == 0);
  CHECK(last_cut("", 5) == 0);
  CHECK(first_cut("ab cd", 3) == 5);
}

TEST_CASE_FIXTURE(Fixture, "tokens of another tokenizer are not decoded") {
  const Tokenizer tokenizer = openai();
  for (const std::int32_t token : {tokenizer.size(), -1})
    CHECK(says(error_of([&] { static_cast<void>(tokenizer.decode(Tokens{0, token})); }), ErrorCode::data,
               "is not one of the tokenizer's"));
}

TEST_CASE_FIXTURE(Fixture, "damaged tokenizer files are refused with file, offset and reason") {
  openai();
  const auto merges = [&](const std::string& more) { return refusal("gpt2/vocab.bpe", small.vocab_bpe() + more); };
  const std::string line = std::to_string(small.vocab_bpe().size());
  CHECK(says(merges("a\n"), "vocab.bpe: line 30 at offset " + line + ": a merge is not two tokens"));
  CHECK(says(merges("a b c\n"), "not two tokens"));
  CHECK(says(merges("a b\n"), "'ab' is not a token of "));
  CHECK(says(merges("h e\n"), "at offset " + line + " creates the same token"));
  CHECK(says(refusal("gpt2/vocab.bpe", "Ġt he\n"), "at offset 0 joins a token that no earlier merge creates"));
  folder.write("gpt2/vocab.bpe", "#version: 0.2\n");

  const auto names = [&](const std::string& json) {
    folder.write("gpt2/encoder.json", json);
    return refusal_of(folder.path() / "gpt2");
  };
  const std::string whole = small.encoder_json();
  CHECK(says(names(whole.substr(0, 100)), "encoder.json: not JSON: incomplete JSON at offset 100"));
  CHECK(says(names(whole + "x"), "extra data at offset"));
  CHECK(says(names("[]"), "is not a JSON object"));
  CHECK(says(names(R"({"a": 0, "b": 0})"), "two tokens have number 0"));
  CHECK(says(names(R"({"a": -1})"), "number -1 is not between"));
  CHECK(says(names(R"({"a": 1e9})"), "not an integer"));
  CHECK(says(names(R"({"a": 999999999})"), "number 999999999 is not between"));
  CHECK(says(names(R"({"a": 0, "b": 2})"), "token 1 is missing"));
  CHECK(says(names(R"({"\u4e2d": 0})"), "byte alphabet"));
  CHECK(says(names(R"({"": 0, "b": 1, "<|endoftext|>": 2})"), "is empty"));
  CHECK(says(names(whole.substr(0, whole.rfind(',')) + "}"), "token '<|endoftext|>' is missing"));
}

TEST_CASE_FIXTURE(Fixture,
                  "tokenizers with other rules than GPT-2's are not of its kind, and damaged ones are refused") {
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string json = small.tokenizer_json();
    const auto at = json.find(from);
    REQUIRE(at != std::string::npos);
    return folder.write("tokenizer.json", json.replace(at, from.size(), to));
  };
  CHECK(is_of_gpt2s_kind(JsonFile(changed("", ""))));
  for (const auto& [from, to] : {std::pair{R"("BPE")", R"("WordPiece")"},
                                 {R"("ByteLevel")", R"("Split")"},
                                 {R"("add_prefix_space": false)", R"("add_prefix_space": true)"},
                                 {R"("use_regex": true)", R"("use_regex": false)"},
                                 {R"("normalizer": null)", R"("normalizer": {"type": "NFC"})"},
                                 {R"("special": true)", R"("special": false)"}}) {
    CAPTURE(to);
    CHECK(!is_of_gpt2s_kind(JsonFile(changed(from, to))));
  }
  CHECK(says(refusal_of(changed("\"model\"", "\"other\"")), "'model' is not a JSON object"));
  CHECK(says(refusal_of(changed("\"merges\": [", "\"merges\": [1, ")), "merge 0: a merge is not two tokens"));
  CHECK(says(refusal("cl100k_base.tiktoken", "IQ== 100255\n"), "more than 65536 tokens"));
  CHECK(says(refusal("a.tiktoken", "IQ==\n"), "line 1 at offset 0 is not a base64 token"));
  CHECK(says(refusal("a.tiktoken", "I*== 0\n"), "line 1 at offset 0"));
  CHECK(says(refusal("a.tiktoken", "IQ== 0\n"), "byte 0 is not a token"));
  CHECK(says(refusal("a.tiktoken", fmt::format("{}{:A<344} 999\n", small.tiktoken(), "")),
             "has 258 bytes; at most 256"));
  const auto none = refusal_of(folder.path() / "nowhere");
  CHECK(none.code() == ErrorCode::io);
  folder.write("empty/x", "");
  CHECK(says(refusal_of(folder.path() / "empty"), "no tokenizer found"));
}

TEST_CASE_FIXTURE(Fixture, "the files of a tokenizer are those that a separate folder needs") {
  using Files = std::map<std::string, std::filesystem::path>;
  openai();
  folder.write("gpt2/tokenizer_config.json", "{}");
  folder.write("gpt2/model.safetensors", "");
  const auto gpt2 = folder.path() / "gpt2";
  folder.write("gpt2/chat_template.jinja", "");
  CHECK(tokenizer_files(gpt2) == Files{{"chat_template.jinja", gpt2 / "chat_template.jinja"},
                                       {"merges.txt", gpt2 / "vocab.bpe"},
                                       {"tokenizer_config.json", gpt2 / "tokenizer_config.json"},
                                       {"vocab.json", gpt2 / "encoder.json"}});
  CHECK(tokenizer_files("of/mine.json") == Files{{"tokenizer.json", "of/mine.json"}});
  CHECK(tokenizer_files("of/r50k.tiktoken") == Files{{"r50k.tiktoken", "of/r50k.tiktoken"}});
}

TEST_CASE_FIXTURE(Fixture, "every truncation of a tokenizer file is refused or leaves complete lines") {
  for (const auto& [name, whole] : {std::pair<std::string, std::string>{"tokenizer.json", small.tokenizer_json()},
                                    {"small.tiktoken", small.tiktoken()}}) {
    for (std::size_t length = 0; length < whole.size(); length += 7) {
      const auto path = folder.write(name, whole.substr(0, length));
      try {
        const Tokenizer tokenizer = read_tokenizer(path);
        CHECK(name == "small.tiktoken");
        CHECK(tokenizer.size() >= 257);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::data);
      }
    }
  }
}
