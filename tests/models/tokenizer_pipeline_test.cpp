#include "models/tokenizers/text_encoder.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "tests/models/sentencepiece_writer.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

using Strings = std::vector<std::string>;

/// Parts of a tokenizer.json, in JSON.
struct Parts {
  std::string normalizer = "null", pre_tokenizer = "null", decoder = "null", model_options, added;
  Strings pieces;  // by number
  std::vector<std::pair<std::string, std::string>> merges;
  std::string type = "BPE", post_processor = "null";

  [[nodiscard]] std::string json() const {
    std::string vocabulary, joins;
    for (std::size_t i = 0; i < pieces.size(); ++i)
      vocabulary += fmt::format("{}{}: {}", i == 0 ? "" : ", ", SmallTokenizer::in_json(pieces[i]), i);
    for (const auto& [left, right] : merges)
      joins += fmt::format("{}[{}, {}]", joins.empty() ? "" : ", ", SmallTokenizer::in_json(left),
                           SmallTokenizer::in_json(right));
    const std::string with_merges = type == "BPE" ? fmt::format(", \"merges\": [{}]", joins) : "";
    return fmt::format(
        R"({{"added_tokens": [{}], "normalizer": {}, "pre_tokenizer": {}, "post_processor": {}, "decoder": {}, )"
        R"("model": {{"type": "{}", {}"vocab": {{{}}}{}}}}})",
        added, normalizer, pre_tokenizer, post_processor, decoder, type, model_options, vocabulary, with_merges);
  }
};

std::string special(std::string_view content, int id, bool is_special = true) {
  return fmt::format(R"({{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, )"
                     R"("normalized": {}, "special": {}}})",
                     id, SmallTokenizer::in_json(content), is_special ? "false" : "true",
                     is_special ? "true" : "false");
}

struct Fixture {
  TemporaryFolder folder;

  Tokenizer read(const Parts& parts) const { return read_tokenizer(folder.write("tokenizer.json", parts.json())); }
  Error refusal(const Parts& parts) const {
    return error_of([&] { static_cast<void>(read(parts)); });
  }
};

/// In the vocabulary's spelling.
Strings pieces_of(const Tokenizer& tokenizer, const Strings& spellings, std::string_view text,
                  SpecialTokenPolicy specials = SpecialTokenPolicy::text) {
  std::vector<std::int32_t> tokens;
  tokenizer.encoder(specials)->encode(text, true, tokens);
  Strings to;
  for (const std::int32_t token : tokens) to.push_back(spellings[static_cast<std::size_t>(token)]);
  return to;
}

Parts of_bytes() {
  Parts parts;
  for (int byte = 0; byte < 256; ++byte) parts.pieces.push_back(SmallTokenizer::spelled({static_cast<char>(byte)}));
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"1", "2"}, {"12", "3"}, {"123", "4"}, {"!", "Ċ"}, {"'", "S"}}) {
    parts.merges.emplace_back(left, right);
    parts.pieces.push_back(left + right);
  }
  parts.pieces.emplace_back("<|endoftext|>");
  parts.added = special("<|endoftext|>", static_cast<int>(parts.pieces.size()) - 1);
  parts.decoder = R"({"type": "ByteLevel"})";
  return parts;
}

std::string split_by_expression(std::string_view expression) {
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [{{"type": "Split", "pattern": {{"Regex": {}}}, )"
      R"("behavior": "Isolated", "invert": false}}, {{"type": "ByteLevel", "add_prefix_space": false, )"
      R"("use_regex": false}}]}})",
      SmallTokenizer::in_json(expression));
}

constexpr std::string_view llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// LLaMA's first tokenizer: characters, with bytes for the others.
Parts of_characters() {
  Parts parts;
  parts.pieces = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) parts.pieces.push_back(fmt::format("<0x{:02X}>", byte));
  for (const char* piece : {"▁", "a", "b", "c", "▁a", "ab", "▁ab", "▁▁"}) parts.pieces.emplace_back(piece);
  parts.merges = {{"▁", "a"}, {"a", "b"}, {"▁a", "b"}, {"▁", "▁"}};
  parts.model_options = R"("unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, )";
  parts.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, )"
                     R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  parts.decoder = R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, )"
                  R"("content": " "}, )"
                  R"({"type": "ByteFallback"}, {"type": "Fuse"}, )"
                  R"({"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  parts.added = special("<unk>", 0) + ", " + special("<s>", 1) + ", " + special("</s>", 2);
  return parts;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a custom expression splits the words of a byte-level BPE") {
  Parts parts = of_bytes();
  parts.pre_tokenizer = split_by_expression(llama3);
  const Tokenizer tokenizer = read(parts);
  CHECK(pieces_of(tokenizer, parts.pieces, "the the1234!\nI'S") ==
        Strings{"t", "he", "Ġthe", "123", "4", "!Ċ", "I", "'S"});
  CHECK(tokenizer.end_of_text() == 264);
  CHECK(tokenizer.cuts(SpecialTokenPolicy::text).places == SplitPoints::spaces);
  // RoBERTa's special tokens are found in normalized text, which is the text itself without a normalizer.
  Parts normalized = parts;
  const std::string_view before = R"("normalized": false)";
  normalized.added.replace(normalized.added.find(before), before.size(), R"("normalized": true)");
  CHECK(read(normalized).cuts(SpecialTokenPolicy::tokenizer).places == SplitPoints::spaces);
  CHECK(pieces_of(tokenizer, parts.pieces, "\xff the") == Strings{"ÿ", "Ġthe"});

  parts.pre_tokenizer = split_by_expression("[a-z]+ 1");
  CHECK(read(parts).cuts(SpecialTokenPolicy::text).places == SplitPoints::nowhere);
  parts.pre_tokenizer = split_by_expression("(");
  CHECK(says(refusal(parts), "'pre_tokenizer.pretokenizers[0]'"));
  parts.pre_tokenizer = split_by_expression("[a[b]]");
  CHECK(says(refusal(parts), "brackets in brackets"));
}

TEST_CASE_FIXTURE(Fixture, "a word that is a token is not split if merges are ignored") {
  Parts parts = of_bytes();
  parts.pieces.emplace_back("abc");
  parts.pre_tokenizer = split_by_expression(llama3);
  CHECK(pieces_of(read(parts), parts.pieces, "abc") == Strings{"a", "b", "c"});
  parts.model_options = R"("ignore_merges": true, )";
  CHECK(pieces_of(read(parts), parts.pieces, "abc") == Strings{"abc"});
}

TEST_CASE_FIXTURE(Fixture, "text that spells a special token is text by default, other added tokens are found") {
  Parts parts = of_bytes();
  parts.pre_tokenizer = split_by_expression(llama3);
  parts.pieces.emplace_back("<tool>");
  parts.added += ", " + special("<tool>", 265, false);
  const Tokenizer tokenizer = read(parts);
  const std::string text = "a<tool>b<|endoftext|>";
  const Strings as_token = pieces_of(tokenizer, parts.pieces, text, SpecialTokenPolicy::tokenizer);
  CHECK(as_token == Strings{"a", "<tool>", "b", "<|endoftext|>"});
  CHECK(pieces_of(tokenizer, parts.pieces, text).size() == 3 + 13);
  CHECK(tokenizer.encode(text).size() == 4);
  CHECK(tokenizer.decode(tokenizer.encode(text)) == "a<tool>b");
}

TEST_CASE_FIXTURE(Fixture,
                  "characters without a piece become bytes, and the space before a text is removed again") {
  const Parts parts = of_characters();
  const Tokenizer tokenizer = read(parts);
  CHECK(pieces_of(tokenizer, parts.pieces, "ab ab  c") == Strings{"▁ab", "▁ab", "▁▁", "c"});
  CHECK(pieces_of(tokenizer, parts.pieces, "é") == Strings{"▁", "<0xC3>", "<0xA9>"});
  CHECK(pieces_of(tokenizer, parts.pieces, "a\xff") == Strings{"▁a", "<0xFF>"});
  CHECK(tokenizer.cuts(SpecialTokenPolicy::text).places == SplitPoints::spaces);
  CHECK(tokenizer.end_of_text() == 2);
  for (const char* text : {"ab c é  \xff\xfe", " a", "", "</s"})
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  std::string inside;
  tokenizer.decode(tokenizer.encode("ab").front(), inside);
  CHECK(inside == " ab");

  Parts spelled = parts;  // <0x0a> is not a byte piece
  spelled.pieces.emplace_back("<0x0a>");
  CHECK(pieces_of(read(spelled), spelled.pieces, "a\n") == Strings{"▁a", "<0x0A>"});

  Parts without = parts;
  without.model_options = R"("unk_token": "<unk>", "fuse_unk": true, )";
  CHECK(pieces_of(read(without), parts.pieces, "xya") == Strings{"▁", "<unk>", "a"});
  without.model_options = R"("unk_token": "<unk>", "fuse_unk": false, )";
  CHECK(pieces_of(read(without), parts.pieces, "xya") == Strings{"▁", "<unk>", "<unk>", "a"});
}

TEST_CASE_FIXTURE(Fixture, "WordPiece takes the longest piece first, like BERT") {
  Parts parts;
  parts.type = "WordPiece";
  parts.model_options =
      R"("unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 6, )";
  parts.pieces = {"[PAD]", "[UNK]", "[SEP]", "un", "##a", "##ff", "##able",
                  "unaff", "cafe",  "中",    ",",  "don", "'",    "t"};
  parts.normalizer = R"({"type": "BertNormalizer"})";
  parts.pre_tokenizer = R"({"type": "BertPreTokenizer"})";
  parts.decoder = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})";
  parts.added = special("[PAD]", 0) + ", " + special("[UNK]", 1) + ", " + special("[SEP]", 2);
  folder.write("tokenizer_config.json", R"({"sep_token": "[SEP]", "pad_token": {"content": "[PAD]"}})");
  const Tokenizer tokenizer = read(parts);
  const std::string text = "UNAFF café,中中 unable unaffable\x01 [SEP]";
  CHECK(pieces_of(tokenizer, parts.pieces, text, SpecialTokenPolicy::tokenizer) ==
        Strings{"unaff", "cafe", ",", "中", "中", "un", "##able", "[UNK]", "[SEP]"});
  CHECK(tokenizer.specials().padding == 0);
  CHECK(tokenizer.specials().separator == 2);
  CHECK(tokenizer.end_of_text() == 2);
  CHECK(tokenizer.decode(tokenizer.encode("unable, don't")) == "unable, don ' t");

  folder.write("tokenizer_config.json", R"({"do_lower_case": true})");  // in the format of older checkpoints
  parts.pieces.emplace_back("[MASK]");
  parts.pieces.emplace_back("[CLS]");
  const SpecialTokens usual = read(parts).specials();
  CHECK(usual.mask == 14);
  CHECK(usual.classifier == 15);
  CHECK(usual.separator == 2);
  CHECK(usual.padding == 0);
  CHECK(!usual.begin_of_text);
  parts.pieces.resize(14);

  std::string lines;
  for (const std::string& piece : parts.pieces) lines += piece + "\n";
  const Tokenizer older = read_tokenizer(folder.write("vocab.txt", lines));
  CHECK(older.encode("UNAFF café,中中 unable [SEP]") == tokenizer.encode("UNAFF café,中中 unable [SEP]"));
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(read_tokenizer(folder.path() / "vocab.txt").fingerprint() != older.fingerprint());
}

TEST_CASE_FIXTURE(Fixture, "a text split at allowed offsets becomes the tokens of the complete text") {
  Parts llama = of_characters(), bytes = of_bytes();
  bytes.normalizer = R"({"type": "NFC"})";
  bytes.pre_tokenizer = split_by_expression(llama3);
  Parts metaspace = of_characters();
  metaspace.normalizer = "null";
  metaspace.pre_tokenizer =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})";
  // Characters that an earlier step drops, or matches across a space.
  Parts dropped = metaspace, across = bytes, prefixed = bytes;
  const auto sequence = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"type": "Sequence", "pretokenizers": [{}, {}]}})", first, second);
  };
  dropped.pre_tokenizer = sequence(R"({"type": "WhitespaceSplit"})",
                                   R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})");
  prefixed.pre_tokenizer = sequence(R"({"type": "BertPreTokenizer"})", R"({"type": "ByteLevel"})");
  across.pre_tokenizer =
      sequence(R"({"type": "Split", "pattern": {"Regex": "[a-z] [0-9]"}, "behavior": "Isolated"})",
               R"({"type": "ByteLevel", "add_prefix_space": false})");
  // Characters between spaces that are removed or become a space; replacements of spaces.
  Parts stripped = bytes, bert = prefixed, cleaned = bytes, joined = prefixed;
  stripped.normalizer = R"({"type": "StripAccents"})";
  bert.normalizer = cleaned.normalizer = R"({"type": "BertNormalizer"})";
  joined.normalizer = R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})";
  // A token of two words, and one after which a text starts.
  Parts two_words = llama, behind = llama;
  two_words.pieces.emplace_back("ab c");
  two_words.added += ", " + special("ab c", static_cast<int>(two_words.pieces.size()) - 1, false);
  behind.pieces.emplace_back("the");
  behind.added += fmt::format(R"(, {{"id": {}, "content": "the", "normalized": false}})", behind.pieces.size() - 1);

  // A token that strips white space on both sides.
  Parts strips = llama;
  strips.pieces.emplace_back("<x>");
  strips.added += fmt::format(
      R"(, {{"id": {}, "content": "<x>", "special": true, "normalized": false, "lstrip": true, "rstrip": true}})",
      strips.pieces.size() - 1);

  const Strings units = {"<x>",     "ab", " ",    "  ",   "c", "\n",     "the",    "123",  "!",   "é",
                         "e\u0301", "中", "</s>", "\xff", "▁", "\u0301", "\u200b", "\x01", "c 1", "ab c"};
  std::mt19937_64 random(7);
  int cuts_made = 0;
  const auto check = [&](const Parts& parts, bool can_be_cut) {
    const Tokenizer tokenizer = read(parts);
    CAPTURE_ALL(parts.normalizer, parts.pre_tokenizer);
    for (int i = 0; i < 60; ++i) {
      const auto policy = i % 2 == 0 ? SpecialTokenPolicy::text : SpecialTokenPolicy::tokenizer;
      const TextCuts cuts = tokenizer.cuts(policy);
      CHECK((cuts.places == SplitPoints::spaces) == can_be_cut);
      if (cuts.places == SplitPoints::nowhere) return;
      std::string text;
      for (int n = 0; n < 40; ++n) text += units[random() % units.size()];
      CAPTURE(text);
      std::vector<std::int32_t> whole;
      const auto encoder = tokenizer.encoder(policy);
      encoder->encode(text, true, whole);
      for (std::size_t cut = last_cut(text, text.size(), cuts); cut > 0; cut = last_cut(text, cut - 1, cuts)) {
        ++cuts_made;
        std::vector<std::int32_t> parts_of;
        encoder->encode(text.substr(0, cut), true, parts_of);
        encoder->encode(text.substr(cut), false, parts_of);
        CHECK(parts_of == whole);
      }
    }
  };
  for (const Parts& parts : {llama, bytes, metaspace, dropped, prefixed, bert, strips}) check(parts, true);
  CHECK(cuts_made > 1000);
  for (const Parts& parts : {across, stripped, cleaned, joined, two_words, behind}) check(parts, false);
}

TEST_CASE_FIXTURE(Fixture, "unsupported entries of a tokenizer.json are named by key") {
  Parts parts = of_bytes();
  parts.pre_tokenizer = split_by_expression(llama3);
  for (const auto& [part, value, words] :
       {std::tuple{&Parts::type, "Unigram", "'model' has unsupported type 'Unigram'"},
        {&Parts::normalizer, R"({"type": "Precompiled"})", "'normalizer' has unsupported type 'Precompiled'"},
        {&Parts::pre_tokenizer, R"({"type": "UnicodeScripts"})", "'pre_tokenizer' has unsupported type"},
        {&Parts::decoder, R"({"type": "CTC"})", "'decoder' has unsupported type 'CTC'"},
        {&Parts::model_options, R"("dropout": 0.1, )", "'model.dropout' is set"},
        {&Parts::added, R"({"id": 99999999, "content": "x"})", "'added_tokens[0].id'"},
        {&Parts::added, R"({"id": 3, "content": "new"})", "'added_tokens[0].id' is 3, already the number of"}}) {
    Parts other = parts;
    other.*part = value;
    CHECK(says(refusal(other), words));
  }
  Parts joining = parts;
  joining.merges.emplace_back("q", "q");
  CHECK(says(refusal(joining), "'model.merges[8]' joins 'q' and 'q', but 'qq' is not a token"));
  Parts no_end = parts;
  no_end.added.clear();
  no_end.pieces.pop_back();
  CHECK(says(error_of([&] { static_cast<void>(read(no_end).required_end_of_text()); }), "eos_token"));
}

TEST_CASE_FIXTURE(Fixture, "a text gets the tokens of the template, or for a LLaMA of its configuration") {
  using Tokens = std::vector<std::int32_t>;
  Parts parts = of_characters();
  const auto beginning = [&](const std::string& post_processor, const std::string& config = "{}") {
    parts.post_processor = post_processor;
    folder.write("tokenizer_config.json", config);
    const Tokenizer tokenizer = read(parts);
    return tokenizer.around().beginning;
  };
  const auto ending = [&] { return read(parts).around().ending; };
  const auto single = [](const std::string& pieces) {
    return R"({"type": "TemplateProcessing", "single": [)" + pieces + R"(], "pair": [], "special_tokens": {}})";
  };
  const std::string begin = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})";
  const std::string end = R"({"SpecialToken": {"id": "</s>", "type_id": 0}})";
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})";
  const std::string both = single(begin + "," + text + "," + end);
  CHECK(beginning("null").empty());
  CHECK(ending().empty());
  CHECK(beginning(both) == Tokens{1});
  CHECK(ending() == Tokens{2});
  CHECK(beginning(single(end + "," + begin + "," + text)) == Tokens{2, 1});
  CHECK(ending().empty());
  CHECK(beginning(single(text + "," + end)).empty());
  CHECK(ending() == Tokens{2});
  CHECK(beginning(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + both + "]}") == Tokens{1});
  CHECK(beginning(R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})") == Tokens{1});
  CHECK(ending() == Tokens{2});
  const std::string llama = R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>")";
  CHECK(beginning("null", llama + "}") == Tokens{1});
  CHECK(ending().empty());
  CHECK(
      beginning(both, llama + R"(, "add_bos_token": false, "eos_token": "</s>", "add_eos_token": true})").empty());
  CHECK(ending() == Tokens{2});
  CHECK(beginning(both, llama + R"(, "add_bos_token": false})").empty());
  CHECK(beginning(both, R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": false})") == Tokens{1});
  parts.post_processor = single(R"({"SpecialToken": {"id": "<x>", "type_id": 0}})");
  CHECK(says(refusal(parts), "'post_processor.single[0].SpecialToken.id' is not a token"));
  // Encoding leaves them to its caller.
  parts.post_processor = both;
  CHECK(read(parts).encode("a") == Tokens{263});
}

TEST_CASE_FIXTURE(Fixture, "a SentencePiece model joins the pieces of the highest score first") {
  SentencePieceWriter writer;
  writer.add("<unk>", 0, 2).add("<s>", 0, 3).add("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) writer.add(fmt::format("<0x{:02X}>", byte), 0, 6);
  writer.add("▁", -10).add("a", -11).add("b", -12).add("c", -13);
  writer.add("bc", -1).add("ab", -2).add("▁a", -3).add("abc", -4).add("<tool>", 0, 4);
  const Tokenizer tokenizer = read_tokenizer(folder.write("tokenizer.model", writer.model()));
  CHECK(pieces_of(tokenizer, writer.pieces, "abc  ab</s>").front() == "▁a");
  CHECK(pieces_of(tokenizer, writer.pieces, "abc é") == Strings{"▁a", "bc", "▁", "<0xC3>", "<0xA9>"});
  CHECK(pieces_of(tokenizer, writer.pieces, "c<tool>c") == Strings{"▁", "c", "<tool>", "c"});
  CHECK(tokenizer.specials().begin_of_text == 1);
  CHECK(tokenizer.around().beginning == std::vector{1});
  CHECK(tokenizer.end_of_text() == 2);
  CHECK(tokenizer.decode(tokenizer.encode(" abc  é")) == " abc  é");
  writer.remove_extra_whitespaces = true;
  const Tokenizer squeezing = read_tokenizer(folder.write("tokenizer.model", writer.model()));
  CHECK(squeezing.decode(squeezing.encode("  a   b ")) == "a b");

  const auto refused = [&](const std::string& content) {
    return error_of([&] { static_cast<void>(read_tokenizer(folder.write("tokenizer.model", content))); });
  };
  writer.type = 1;
  CHECK(says(refused(writer.model()), "unsupported trainer_spec.model_type (only BPE, 2): UNIGRAM (1)"));
  writer.type = 2;
  const std::string whole = writer.model();
  for (std::size_t length = 0; length + 60 < whole.size(); length += 97)
    CHECK(refused(whole.substr(0, length)).code() == ErrorCode::data);
  writer.characters = "damaged";
  CHECK(says(refused(writer.model()), "precompiled_charsmap is damaged"));
}
