#include "models/text/token_file.hpp"

#include "models/text/text_source.hpp"
#include "models/text/token_sequence.hpp"
#include "tests/models/token_files.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

constexpr std::size_t header_bytes = 1024;

using Shorts = std::vector<std::uint16_t>;

template <typename Tokens>
std::vector<std::int32_t> read(const Tokens& tokens, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  tokens.read(first, count, 1 << 30, out.data());
  return out;
}

TokenFile open_file(const std::filesystem::path& path, TokenFormat format = TokenFormat::automatic) {
  return TokenFile(recognise(path, {.format = format}));
}

Error refusal(const std::filesystem::path& path, TokenFormat format = TokenFormat::automatic) {
  return error_of([&] { open_file(path, format); });
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "each byte of a text is a token") {
  const TokenFile file = open_file(folder.write("a.txt", "ab\xff"));
  CHECK(file.format() == TokenFormat::text);
  CHECK(file.tokens() == 3);
  CHECK(read(file, 0, 3) == std::vector<std::int32_t>{'a', 'b', 255});
  CHECK(read(file, 1, 1) == std::vector<std::int32_t>{'b'});
  CHECK(read(file, 3, 0).empty());
  CHECK(error_of([&] { read(file, 2, 2); }).code() == ErrorCode::internal);
}

TEST_CASE_FIXTURE(InFolder, "tokens are recognized by format, name or first bytes") {
  CHECK(holds_tokens(folder.path() / "nothing.bin", TokenFormat::automatic));
  CHECK_FALSE(holds_tokens(folder.path() / "nothing.bin", TokenFormat::text));
  CHECK(holds_tokens(folder.path() / "nothing", TokenFormat::uint16));
  CHECK_FALSE(holds_tokens(folder.path() / "nothing", TokenFormat::automatic));
  CHECK_FALSE(holds_tokens(folder.path(), TokenFormat::automatic));
  CHECK(holds_tokens(folder.write("tokens", llmc_file(Shorts{1, 2, 3})), TokenFormat::automatic));
  CHECK_FALSE(holds_tokens(folder.write("text", "abc"), TokenFormat::automatic));
  folder.write("prefix.bin", "abcd");
  CHECK_FALSE(holds_tokens(folder.path() / "prefix", TokenFormat::automatic));
}

TEST_CASE_FIXTURE(InFolder, "uint16 tokens without a header are read if the format is given") {
  const auto path = folder.write("a.bin", bytes_of(Shorts{1, 40000}));
  CHECK(read(open_file(path, TokenFormat::uint16), 0, 2) == std::vector<std::int32_t>{1, 40000});
  CHECK(says(refusal(path), ErrorCode::data, "20240520", "`token_format` uint16"));
  CHECK(says(refusal(folder.write("b.bin", "abc"), TokenFormat::uint16), "truncated"));
}

TEST_CASE_FIXTURE(InFolder, "uint16 tokens that are wider ones, or too narrow for their tokenizer, are refused") {
  std::vector<std::uint32_t> wide;
  Shorts narrow, characters;
  std::mt19937 random(5);
  for (int i = 0; i < 10'000; ++i) {
    wide.push_back(random() % 128'256);
    narrow.push_back(static_cast<std::uint16_t>(random() % 50'257));
    characters.push_back(static_cast<std::uint16_t>(random() % 65));
  }
  const auto refused = [&](const std::string& bytes) {
    const auto path = folder.write("a.bin", bytes);
    return error_of([&] { static_cast<void>(open_file(path, TokenFormat::uint16)); }).code() == ErrorCode::data;
  };
  CHECK(says(refusal(folder.write("a.bin", bytes_of(wide)), TokenFormat::uint16), "32 bits or more"));
  CHECK(refused(bytes_of(std::vector<std::uint32_t>(characters.begin(), characters.end()))));
  CHECK(refused(bytes_of(std::vector<std::int64_t>(narrow.begin(), narrow.end()))));
  CHECK(refused(bytes_of(std::vector<std::int64_t>(wide.begin(), wide.end()))));
  for (const auto& tokens : {narrow, characters, Shorts(1000, 0)})
    CHECK(open_file(folder.write("a.bin", bytes_of(tokens)), TokenFormat::uint16).tokens() == std::ssize(tokens));
  std::string vocabulary = "[UNK]\n[SEP]\n";
  for (int i = 0; i < 70'000; ++i) vocabulary += std::to_string(i) + "\n";
  const auto error = error_of([&] {
    static_cast<void>(open_text_data({.path = folder.write("a.bin", bytes_of(narrow)),
                                      .tokenizer = folder.write("vocab.txt", vocabulary),
                                      .reading = {.format = TokenFormat::uint16},
                                      .sequence_length = 4,
                                      .vocab_size = 70'002}));
  });
  CHECK(says(error, ErrorCode::data, "65536 tokens of uint16: 70002"));
}

TEST_CASE_FIXTURE(InFolder, "files that are missing, empty or of another kind are refused by name") {
  CHECK(says(refusal(folder.path() / "none"), ErrorCode::io, "none: cannot open: No such file"));
  CHECK(says(refusal(folder.write("empty.txt", "")), ErrorCode::data, "empty.txt: the file is empty"));
  CHECK(says(refusal(folder.write("text.txt", std::string(2000, 'a')), TokenFormat::llmc), "magic"));
}

TEST_CASE("every truncation of an llm.c file is refused, and a flipped bit of its header causes no wrong result") {
  const TemporaryFolder folder;
  const Shorts tokens = {1, 2, 3, 50256, 65535};
  const std::string whole = llmc_file(tokens);
  const auto path = folder.write("damaged.bin", whole);
  for (std::size_t length = whole.size(); length-- > 0;) {
    CAPTURE(length);
    std::filesystem::resize_file(path, length);
    CHECK(refusal(path).code() == ErrorCode::data);
    CHECK(refusal(path, TokenFormat::llmc).code() == ErrorCode::data);
  }
  folder.write("damaged.bin", whole);
  for (std::size_t byte = 0; byte < header_bytes; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      CAPTURE_ALL(byte, bit);
      overwrite(path, byte, static_cast<char>(whole[byte] ^ (1 << bit)));
      if (byte < 12) {  // magic, version, count
        CHECK(refusal(path).code() == ErrorCode::data);
      } else {
        const TokenFile file = open_file(path);
        CHECK(read(file, 0, file.tokens()) == std::vector<std::int32_t>(tokens.begin(), tokens.end()));
      }
    }
    overwrite(path, byte, whole[byte]);
  }
}

TEST_CASE_FIXTURE(InFolder, "a token outside the vocabulary is named with file, offset and remedy") {
  Shorts tokens(200'000, 7);
  tokens[150'001] = 50304;
  tokens[150'002] = 60000;
  const TokenFile file = open_file(folder.write("a.bin", llmc_file(tokens)));
  file.check_vocabulary(0, file.tokens(), 60001);
  file.check_vocabulary(0, 150'001, 8);
  const auto error = error_of([&] { file.check_vocabulary(0, file.tokens(), 50257); });
  CHECK(says(error, ErrorCode::data, "a.bin: token 50304 at offset 301026 is outside `vocab_size` 50257",
             "at least 50305"));
  CHECK(says(error_of([&] { file.check_vocabulary(0, 200'000, 7); }), "token 7 at offset 1024 "));

  const TokenFile text = open_file(folder.write("a.txt", "ascii \xc3"));
  text.check_vocabulary(0, 6, 128);
  CHECK(says(error_of([&] { text.check_vocabulary(0, 7, 128); }), "token 195 at offset 6"));
}

TEST_CASE("a folder is read as its text files in the order of their paths, without hidden and binary ones") {
  const TemporaryFolder folder;
  folder.write("b.txt", "B");
  folder.write("a/2.md", "2");
  folder.write("a/10.md", "10");
  folder.write(".git/config", "hidden");
  folder.write("image.png", std::string("\x89PNG\0\0", 6));
  folder.write("empty", "");
  const TokenSequence tokens(folder.path(), {});
  CHECK(tokens.tokens() == 4);
  CHECK(read(tokens, 0, 4) == std::vector<std::int32_t>{'1', '0', '2', 'B'});
  CHECK(read(tokens, 1, 2) == std::vector<std::int32_t>{'0', '2'});
  CHECK(read(tokens, 3, 1) == std::vector<std::int32_t>{'B'});
  CHECK(read(tokens, 4, 0).empty());
  CHECK(error_of([&] { read(tokens, 3, 2); }).code() == ErrorCode::internal);
  CHECK(says(error_of([&] { tokens.check_vocabulary(60); }), "b.txt: token 66"));
  const auto none = error_of([&] { TokenSequence(folder.path(), {.format = TokenFormat::llmc}); });
  CHECK(says(none, ErrorCode::data, "no .bin files"));
}

TEST_CASE_FIXTURE(InFolder, "a folder of token files is read if the format is given") {
  folder.write("1.bin", llmc_file(Shorts{1, 2}));
  folder.write("2.bin", llmc_file(Shorts{3}));
  folder.write("readme.txt", "not tokens");
  const TokenSequence tokens(folder.path(), {.format = TokenFormat::llmc});
  CHECK(read(tokens, 0, 3) == std::vector<std::int32_t>{1, 2, 3});
}

TEST_CASE_FIXTURE(InFolder, "llm.c's files with wide tokens are read, and their versions distinguished") {
  const TokenFile file = open_file(folder.write("a.bin", llmc_file(std::vector<std::uint32_t>{5, 128'255})));
  CHECK(file.format() == TokenFormat::llmc);
  CHECK(read(file, 0, 2) == std::vector<std::int32_t>{5, 128'255});
  CHECK(says(error_of([&] { file.check_vocabulary(0, 2, 50257); }), "token 128255 at offset 1028"));
  const auto path = folder.write("b.bin", llmc_file(std::vector<std::uint32_t>{1, 1u << 31}));
  overwrite(path, 4, 1);
  CHECK(says(refusal(path), "version at offset 4 of llm.c's header: 1; only 7"));
  overwrite(path, 4, 7);
  const TokenFile large = open_file(path);
  CHECK(says(error_of([&] { large.check_vocabulary(0, 2, 1 << 30); }), "token 2147483648 at offset 1028"));
  // As an int32 this would be the token that means no target.
  const TokenFile largest = open_file(folder.write("c.bin", llmc_file(std::vector<std::uint32_t>{1, 4294967295})));
  const auto error = error_of([&] { read(largest, 0, 2); });
  CHECK(says(error, ErrorCode::data, "token 4294967295 at offset 1028", "no vocabulary is that large"));
}

TEST_CASE_FIXTURE(InFolder, "Megatron's tokens of every integer type are read in the order of its index") {
  const auto check = [&]<typename T>(std::uint8_t code, T) {
    CAPTURE(static_cast<int>(code));
    const auto width = static_cast<std::int64_t>(sizeof(T));
    folder.write("a.bin", bytes_of(std::vector<T>{99, 1, 2, 3, 100, 7, 8}));
    // 7 8, nothing, 1, 2 3: the tokens 99 and 100 belong to no sequence.
    const MegatronIndex index{code, {2, 0, 1, 2}, {5 * width, 0, width, 2 * width}, {0, 2, 2, 4}};
    folder.write("a.idx", index.bytes());
    for (const char* name : {"a.bin", "a.idx", "a"}) {
      CHECK(holds_tokens(folder.path() / name, TokenFormat::automatic));
      CHECK(open_file(folder.path() / name, TokenFormat::megatron).tokens() == 5);
      const TokenFile file = open_file(folder.path() / name);
      CHECK(file.format() == TokenFormat::megatron);
      CHECK(file.tokens() == 5);
      CHECK(read(file, 0, 5) == std::vector<std::int32_t>{7, 8, 1, 2, 3});
      CHECK(read(file, 1, 2) == std::vector<std::int32_t>{8, 1});
      CHECK(read(file, 5, 0).empty());
      file.check_vocabulary(0, 5, 9);
      file.check_vocabulary(2, 3, 4);
      const auto error = error_of([&] { file.check_vocabulary(0, 5, 8); });
      CHECK(says(error, "a.bin: token 8 at offset " + std::to_string(6 * width), "at least 9"));
    }
  };
  check(1, std::uint8_t{});
  check(2, std::int8_t{});
  check(3, std::int16_t{});
  check(4, std::int32_t{});
  check(5, std::int64_t{});
  check(8, std::uint16_t{});
}

TEST_CASE_FIXTURE(InFolder, "documents start as in Megatron's index, without empty ones") {
  folder.write("a.bin", bytes_of(Shorts{1, 2, 3, 4, 5, 6, 7, 8}));
  const MegatronIndex index{
      .sizes = {2, 1, 0, 3, 0, 2, 0}, .begins = {0, 4, 6, 6, 12, 12, 16}, .documents = {0, 2, 2, 3, 5, 6, 7}};
  folder.write("a.idx", index.bytes());
  const TokenFile file = open_file(folder.path() / "a.bin", TokenFormat::megatron);
  CHECK(file.knows_documents());
  CHECK(file.document_begins(1, 100) == std::vector<std::int64_t>{0, 3, 6});
  const TokenFile plain = open_file(folder.path() / "a.bin", TokenFormat::uint16);
  CHECK_FALSE(plain.knows_documents());
  CHECK(plain.document_begins(1, 100) == std::vector<std::int64_t>{0, 1});
  CHECK(plain.document_begins(8, 100) == std::vector<std::int64_t>{0});
}

TEST_CASE_FIXTURE(InFolder, "negative tokens are refused with any vocabulary") {
  folder.write("a.bin", bytes_of(std::vector<std::int64_t>{3, -1, std::int64_t{1} << 40}));
  folder.write("a.idx", MegatronIndex{5, {3}, {0}, {0, 1}}.bytes());
  const TokenFile file = open_file(folder.path() / "a.bin", TokenFormat::megatron);
  CHECK(says(error_of([&] { file.check_vocabulary(0, 3, 2147483647); }), "token -1 at offset 8 is outside"));
  CHECK(says(error_of([&] { file.check_vocabulary(2, 1, 2147483647); }), "token 1099511627776 at offset 16"));
}

TEST_CASE("an index that is damaged, or of floating-point numbers, is refused with file and offset") {
  const TemporaryFolder folder;
  folder.write("a.bin", bytes_of(Shorts{1, 2, 3}));
  const MegatronIndex whole{8, {2, 1}, {0, 4}, {0, 1, 2}};
  const auto refused = [&](const std::string& bytes) {
    folder.write("a.idx", bytes);
    const auto error = refusal(folder.path() / "a.bin");
    CHECK(says(error, ErrorCode::data, "a.idx: "));
    return error;
  };
  const auto changed = [&](auto&& change) {
    MegatronIndex index = whole;
    change(index);
    return refused(index.bytes());
  };
  for (std::uint8_t code : {6, 7}) CHECK(says(changed([&](MegatronIndex& i) { i.code = code; }), "floating-point"));
  CHECK(says(changed([](MegatronIndex& i) { i.code = 9; }), "type code 9 at offset 17"));
  CHECK(says(changed([](MegatronIndex& i) { i.code = 0; }), "type code 0 at offset 17"));
  CHECK(says(changed([](MegatronIndex& i) { i.sizes[1] = -1; }), "a sequence of -1 tokens at offset 38"));
  CHECK(
      says(changed([](MegatronIndex& i) { i.sizes[1] = 2; }), "a sequence of 2 tokens at offset 4 of 6 bytes in "));
  CHECK(says(changed([](MegatronIndex& i) { i.begins[1] = -2; }), "at offset 50"));
  CHECK(says(changed([](MegatronIndex& i) { i.begins[0] = std::int64_t{1} << 62; }), "at offset 42"));
  CHECK(says(changed([](MegatronIndex& i) { i.documents = {0, 2, 1}; }),
             "document bound 1 of 2 sequences after 2 at offset 74"));
  CHECK(says(changed([](MegatronIndex& i) { i.documents = {0, 1}; }), "documents cover 1 of 2 sequences"));
  CHECK(says(changed([](MegatronIndex& i) { i.documents = {1, 2}; }), "document bound 1"));
  CHECK(says(changed([](MegatronIndex& i) { i.sizes = {0, 0}; }), "no sequence with a token"));
  const std::string bytes = whole.bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) refused(bytes.substr(0, length));
  refused(bytes + std::string(8, '\0'));
  std::string many = bytes;
  many.replace(18, 8, std::string(8, '\xff'));
  refused(many);
  many = bytes;
  many.replace(26, 8, std::string(8, '\xff'));
  refused(many);
  std::filesystem::remove(folder.path() / "a.idx");
  CHECK(refusal(folder.path() / "a.bin", TokenFormat::megatron).code() == ErrorCode::io);
}
