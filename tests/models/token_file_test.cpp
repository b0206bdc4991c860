#include "models/text/token_file.hpp"

#include "models/text/token_sequence.hpp"
#include "runtime/error.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using ranvier::tests::error_of;
using ranvier::tests::overwrite;
using ranvier::tests::says;
using ranvier::tests::TemporaryFolder;

namespace {

constexpr std::size_t header_bytes = 1024;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc_file(const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

template <typename Tokens>
std::vector<std::int32_t> read(const Tokens& tokens, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  if constexpr (std::is_same_v<Tokens, TokenFile>)
    tokens.read(first, count, out.data());
  else
    tokens.read(first, count, 1 << 16, out.data());
  return out;
}

Error refusal(const std::filesystem::path& path, TokenFormat format = TokenFormat::automatic) {
  return error_of([&] { TokenFile file(path, format); });
}

}  // namespace

TEST_CASE("each byte of a text is a token") {
  const TemporaryFolder folder;
  const TokenFile file(folder.write("a.txt", "ab\xff"), TokenFormat::automatic);
  CHECK(file.format() == TokenFormat::text);
  CHECK(file.tokens() == 3);
  CHECK(read(file, 0, 3) == std::vector<std::int32_t>{'a', 'b', 255});
  CHECK(read(file, 1, 1) == std::vector<std::int32_t>{'b'});
  CHECK(read(file, 3, 0).empty());
  CHECK(error_of([&] { read(file, 2, 2); }).code() == ErrorCode::internal);
}

TEST_CASE("llm.c's files are recognised by their magic number") {
  const TemporaryFolder folder;
  const TokenFile file(folder.write("a.bin", llmc_file({5, 50256, 65535})), TokenFormat::automatic);
  CHECK(file.format() == TokenFormat::llmc);
  CHECK(read(file, 0, 3) == std::vector<std::int32_t>{5, 50256, 65535});
}

TEST_CASE("uint16 tokens without a header are read when told so") {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", bytes_of(std::vector<std::uint16_t>{1, 40000}));
  CHECK(read(TokenFile(path, TokenFormat::uint16), 0, 2) == std::vector<std::int32_t>{1, 40000});
  const auto untold = refusal(path);
  CHECK(untold.code() == ErrorCode::data);
  CHECK(says(untold, "--token-format uint16"));
  CHECK(says(refusal(folder.write("b.bin", "abc"), TokenFormat::uint16), "truncated"));
}

TEST_CASE("files that are missing, empty or of another kind are refused by name") {
  const TemporaryFolder folder;
  CHECK(refusal(folder.path() / "none").code() == ErrorCode::io);
  CHECK(says(refusal(folder.path() / "none"), "none: cannot open: No such file"));
  const auto empty = refusal(folder.write("empty.txt", ""));
  CHECK(empty.code() == ErrorCode::data);
  CHECK(says(empty, "empty.txt: the file is empty"));
  CHECK(says(refusal(folder.write("text.txt", std::string(2000, 'a')), TokenFormat::llmc), "magic"));
}

TEST_CASE("every truncation of an llm.c file is refused, and no flipped bit of its header leads astray") {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens = {1, 2, 3, 4, 5};
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
      CAPTURE(byte);
      CAPTURE(bit);
      overwrite(path, byte, static_cast<char>(whole[byte] ^ (1 << bit)));
      if (byte < 12) {  // magic, version, count
        CHECK(refusal(path).code() == ErrorCode::data);
      } else {
        const TokenFile file(path, TokenFormat::automatic);
        CHECK(read(file, 0, file.tokens()) == std::vector<std::int32_t>{1, 2, 3, 4, 5});
      }
    }
    overwrite(path, byte, whole[byte]);
  }
}

TEST_CASE("a token outside the vocabulary is named with file, offset and remedy") {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> tokens(200'000, 7);
  tokens[150'001] = 50304;
  tokens[150'002] = 60000;
  const TokenFile file(folder.write("a.bin", llmc_file(tokens)), TokenFormat::automatic);
  file.check_vocabulary(0, file.tokens(), 60001);
  file.check_vocabulary(0, 150'001, 8);
  const auto error = error_of([&] { file.check_vocabulary(0, file.tokens(), 50257); });
  CHECK(error.code() == ErrorCode::data);
  CHECK(says(error, "a.bin: token 50304 at offset 301026 is outside the vocabulary of --vocab-size 50257"));
  CHECK(says(error, "at least 50305"));
  CHECK(says(error_of([&] { file.check_vocabulary(0, 200'000, 7); }), "token 7 at offset 1024 "));

  const TokenFile text(folder.write("a.txt", "ascii \xc3"), TokenFormat::automatic);
  text.check_vocabulary(0, 6, 128);
  CHECK(says(error_of([&] { text.check_vocabulary(0, 7, 128); }), "token 195 at offset 6"));
}

TEST_CASE("a folder is its text files in the order of their paths, hidden and binary ones left out") {
  const TemporaryFolder folder;
  folder.write("b.txt", "B");
  folder.write("a/2.md", "2");
  folder.write("a/10.md", "10");
  folder.write(".git/config", "hidden");
  folder.write("image.png", std::string("\x89PNG\0\0", 6));
  folder.write("empty", "");
  const TokenSequence tokens(folder.path(), TokenFormat::automatic);
  CHECK(tokens.tokens() == 4);
  CHECK(read(tokens, 0, 4) == std::vector<std::int32_t>{'1', '0', '2', 'B'});
  CHECK(read(tokens, 1, 2) == std::vector<std::int32_t>{'0', '2'});
  CHECK(read(tokens, 3, 1) == std::vector<std::int32_t>{'B'});
  CHECK(read(tokens, 4, 0).empty());
  CHECK(error_of([&] { read(tokens, 3, 2); }).code() == ErrorCode::internal);
  CHECK(says(error_of([&] { tokens.check_vocabulary(60); }), "b.txt: token 66"));
  const auto none = error_of([&] { TokenSequence(folder.path(), TokenFormat::llmc); });
  CHECK(none.code() == ErrorCode::data);
  CHECK(says(none, "no .bin files"));
}

TEST_CASE("a folder of token files is read when told the format") {
  const TemporaryFolder folder;
  folder.write("1.bin", llmc_file({1, 2}));
  folder.write("2.bin", llmc_file({3}));
  folder.write("readme.txt", "not tokens");
  const TokenSequence tokens(folder.path(), TokenFormat::llmc);
  CHECK(read(tokens, 0, 3) == std::vector<std::int32_t>{1, 2, 3});
}
