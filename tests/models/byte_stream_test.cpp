#include "models/text/byte_stream.hpp"

#include "tests/models/compressed.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

std::string content_of(const std::filesystem::path& path, std::size_t piece = 1000, std::uint64_t skipped = 0) {
  ByteStream stream(path);
  stream.skip(skipped);
  std::string all, block(piece, '\0');
  for (std::size_t count = piece; count == piece;) {
    count = stream.read(block.data(), piece);
    all.append(block, 0, count);
  }
  CHECK(stream.file_position() == stream.file_bytes());
  return all;
}

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i * 7919) + "\n";
  return text;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a compressed file is decompressed in pieces of any size, starting at any offset") {
  const std::string text = numbers(60'000), zeros(3'000'000, '\0');
  for (const std::string& content : {text, zeros, std::string("x")}) {
    const auto plain = folder.write("plain", content), gzip = folder.write("gzip", gzipped(content)),
               zstd = folder.write("zstd", zstd_packed(content));
    CHECK(ByteStream(plain).compression() == Compression::none);
    CHECK(ByteStream(gzip).compression() == Compression::gzip);
    CHECK(ByteStream(zstd).compression() == Compression::zstd);
    for (const auto& path : {plain, gzip, zstd}) {
      CAPTURE(path.filename().string());
      CHECK((content_of(path, 777) == content));
      CHECK((content_of(path, std::size_t{1} << 22) == content));
      const std::uint64_t skipped = content.size() / 3;
      CHECK((content_of(path, 5000, skipped) == content.substr(skipped)));
      CHECK(content_of(path, 10, content.size()).empty());
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "concatenated compressed files, such as logs, have one content") {
  CHECK(content_of(folder.write("a.gz", gzipped("one ") + gzipped("") + gzipped("two") + std::string(512, '\0'))) ==
        "one two");
  CHECK(content_of(folder.write("a.zst", zstd_packed("one ") + zstd_packed("two"))) == "one two");
}

TEST_CASE(
    "compressed data that are damaged, truncated or followed by other data are refused with file and offset") {
  const TemporaryFolder folder;
  const std::string text = numbers(5000);
  for (const bool gzip : {true, false}) {
    const std::string whole = gzip ? gzipped(text) : zstd_packed(text);
    const std::string name = gzip ? "a.gz" : "a.zst";
    const auto refused = [&](const std::string& bytes, const char* words) {
      const auto error = error_of([&] { content_of(folder.write(name, bytes)); });
      CHECK(says(error, ErrorCode::data,
                 name + ": cannot decompress (" + (gzip ? "gzip" : "zstd") + ") before offset ", words));
    };
    for (const std::size_t length : {std::size_t{5}, whole.size() / 2, whole.size() - 1})
      refused(whole.substr(0, length), "truncated");
    std::string damaged = whole;
    for (std::size_t at = whole.size() / 2; at < whole.size() / 2 + 16; ++at) damaged[at] ^= 0x55;
    refused(damaged, "");
    refused(whole + "more", gzip ? "not gzip" : "");
  }
}

TEST_CASE_FIXTURE(InFolder, "an unreadable file is refused by name") {
  CHECK(says(error_of([&] { ByteStream stream(folder.path() / "none"); }), "none: cannot open: No such file"));
  const auto error = error_of([&] { ByteStream stream(folder.path()); });
  CHECK(says(error, ErrorCode::io, "cannot open: not a regular file"));
}
