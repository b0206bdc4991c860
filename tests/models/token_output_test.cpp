#include "models/text/token_output.hpp"

#include "models/text/token_file.hpp"
#include "tests/models/token_files.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

using Tokens = std::vector<std::int32_t>;
using Position = TokenOutput::Position;

struct Fixture {
  TemporaryFolder folder;

  [[nodiscard]] TokenOutputOptions options(TokenOutputFormat format, std::int32_t vocab_size = 300) const {
    return {.path = folder.path() / "out.bin", .format = format, .vocab_size = vocab_size, .job = 7};
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
};

/// Two documents.
void write_all(const TokenOutputOptions& options) {
  TokenOutput output(options);
  CHECK(output.start() == Position{});
  output.append(Tokens{1, 2, 3});
  output.append(Tokens{});
  output.end_document();
  output.append(Tokens{299});
  output.end_document();
  output.commit();
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an llm.c file appears only when it is complete, and nothing else is left") {
  write_all(options(TokenOutputFormat::llmc));
  CHECK(files() == std::vector<std::string>{"out.bin"});
  const TokenFile file(recognise(folder.path() / "out.bin", {}));
  CHECK(file.format() == TokenFormat::llmc);
  Tokens tokens(4);
  file.read(0, file.tokens(), 300, tokens.data());
  CHECK(tokens == Tokens{1, 2, 3, 299});
}

TEST_CASE_FIXTURE(Fixture, "Megatron's files have the bytes of its own tools") {
  for (const std::int32_t vocab_size : {300, 65500}) {
    write_all(options(TokenOutputFormat::megatron, vocab_size));
    CHECK(files() == std::vector<std::string>{"out.bin", "out.idx"});
    const bool wide = vocab_size == 65500;
    CHECK(folder.read("out.bin") ==
          (wide ? bytes_of(Tokens{1, 2, 3, 299}) : bytes_of(std::vector<std::uint16_t>{1, 2, 3, 299})));
    const MegatronIndex index{static_cast<std::uint8_t>(wide ? 4 : 8), {3, 1}, {0, wide ? 12 : 6}, {0, 1, 2}};
    CHECK(folder.read("out.idx") == index.bytes());
  }
}

TEST_CASE_FIXTURE(Fixture, "until it is complete, a file keeps its old content under its name") {
  folder.write("out.bin", "old");
  {
    TokenOutput output(options(TokenOutputFormat::llmc));
    output.append(Tokens{1});
    output.checkpoint({0, 5});
  }
  CHECK(folder.read("out.bin") == "old");
  CHECK(error_of([&] { TokenFile({folder.path() / "out.bin.partial", TokenFormat::llmc}); }).code() ==
        ErrorCode::data);
  TokenOutput(options(TokenOutputFormat::llmc)).commit();
  CHECK(folder.read("out.bin").size() == 1026);
}

TEST_CASE_FIXTURE(Fixture, "an interrupted output resumes from its last checkpoint and ends with the same bytes") {
  for (const auto format : {TokenOutputFormat::llmc, TokenOutputFormat::megatron}) {
    write_all(options(format));
    const std::string tokens = folder.read("out.bin"), index = folder.read("out.idx");
    {
      TokenOutput output(options(format));
      output.append(Tokens{1, 2});
      output.checkpoint({0, 9});
      output.append(Tokens{77});  // lost
      output.end_document();
    }
    {
      TokenOutput output(options(format));
      CHECK(output.start() == Position{0, 9});
      CHECK(output.tokens() == 2);
      output.append(Tokens{3});
      output.end_document();
      output.checkpoint({1, 0});
      output.append(Tokens{5, 6});
    }
    TokenOutput output(options(format));
    CHECK(output.start() == Position{1, 0});
    output.append(Tokens{299});
    output.end_document();
    output.commit();
    CHECK(folder.read("out.bin") == tokens);
    CHECK(folder.read("out.idx") == index);
    std::filesystem::remove(folder.path() / "out.idx");
  }
}

TEST_CASE_FIXTURE(Fixture, "the output of another job, or a damaged one, is not resumed") {
  const auto interrupt = [&] {
    TokenOutput output(options(TokenOutputFormat::llmc));
    output.append(Tokens{1, 2});
    output.checkpoint({0, 9});
  };
  const auto start = [&](std::uint64_t job) {
    auto changed = options(TokenOutputFormat::llmc);
    changed.job = job;
    return TokenOutput(changed).start();
  };
  interrupt();
  CHECK(start(7) == Position{0, 9});
  CHECK(start(8) == Position{});
  CHECK(start(7) == Position{});
  interrupt();
  std::filesystem::resize_file(folder.path() / "out.bin.partial", 1027);
  CHECK(start(7) == Position{});
  interrupt();
  folder.write("out.bin.progress", "ranvier-tokens-1 7 0 9");
  CHECK(start(7) == Position{});
}

TEST_CASE_FIXTURE(Fixture, "impossible outputs are refused with the reason") {
  CHECK(says(error_of([&] { TokenOutput output(options(TokenOutputFormat::llmc, 65537)); }),
             "a vocabulary of 65537 does not fit"));
  CHECK(says(error_of([&] { TokenOutput(options(TokenOutputFormat::llmc)).commit(); }), "has no tokens"));
  const TokenOutput one(options(TokenOutputFormat::llmc));
  CHECK(says(error_of([&] { TokenOutput other(options(TokenOutputFormat::llmc)); }),
             "another process writes this file"));
  auto nowhere = options(TokenOutputFormat::llmc);
  nowhere.path = folder.path() / "none" / "out";
  CHECK(error_of([&] { TokenOutput output(nowhere); }).code() == ErrorCode::io);
}
