// ranvier-tokenize, started like a user starts it, and its options.
#include "apps/tokenize/tokenize_options.hpp"
#include "models/text/token_sequence.hpp"
#include "models/tokenizers/tokenizer_files.hpp"
#include "tests/apps/printed_errors.hpp"
#include "tests/models/compressed.hpp"
#include "tests/models/small_tokenizer.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

using namespace ranvier;
using namespace ranvier::tests;

namespace {

namespace fs = std::filesystem;

using Tokens = std::vector<std::int32_t>;

struct Fixture {
  TemporaryFolder folder;
  SmallTokenizer small;
  std::string tokenizer = "gpt2:" + folder.write("tokenizer.json", small.tokenizer_json()).string();

  CommandOutput tokenize(const std::string& arguments, bool overwrite = true) const {
    return output_of_command("cd " + folder.path().string() + " && " RANVIER_TOKENIZE " " + arguments +
                             (overwrite ? " --overwrite 2>&1" : " 2>&1"));
  }
  void succeeds(const std::string& arguments) const {
    const CommandOutput outcome = tokenize(arguments + " --tokenizer " + tokenizer);
    INFO(outcome.text);
    REQUIRE(outcome.status == 0);
  }
  void refused(const std::string& arguments, const std::string& words) const {
    const CommandOutput outcome = tokenize(arguments);
    INFO(outcome.text);
    CHECK(WEXITSTATUS(outcome.status) >= 64);
    CHECK(outcome.text.starts_with("ranvier-tokenize: error: "));
    check_has(outcome.text, {words});
  }
  /// Starts with a checkpoint every 64 KiB, and kills it after the first one.
  void interrupt(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all{RANVIER_TOKENIZE, "--checkpoint", "64KiB", "--threads", "1",
                                 "--tokenizer",    tokenizer};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& one : all) pointers.push_back(one.data());
    pointers.push_back(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
      ::close(STDOUT_FILENO);
      ::execv(RANVIER_TOKENIZE, pointers.data());
      ::_exit(127);
    }
    int status = 0;
    bool ended = false;
    while (!ended && !fs::exists(folder.path() / "out.bin.progress")) {
      ended = ::waitpid(child, &status, WNOHANG) == child;
      std::this_thread::yield();
    }
    REQUIRE(!ended);
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
  }
  [[nodiscard]] Tokens tokens_of(const std::string& name) const {
    const models::TokenFile file({folder.path() / name, models::TokenFormat::llmc});
    Tokens tokens(static_cast<std::size_t>(file.tokens()));
    file.read(0, file.tokens(), 1 << 16, tokens.data());
    return tokens;
  }
  [[nodiscard]] Tokens expected(const std::vector<std::string>& parts) const {
    Tokens all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) all.push_back(small.end_of_text());
      for (const std::int32_t token : small.encoded(parts[i])) all.push_back(token);
    }
    return all;
  }
};

std::string long_text(std::size_t lines) {
  std::string text;
  for (std::size_t i = 0; i < lines; ++i)
    text += "the world re" + std::to_string(i * 2654435761u % 1000) + " 's aaaa\n\n  in the end " +
            (i % 1000 == 0 ? "\xff\n" : "\n");  // few enough to be damage rather than another encoding
  return text;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "files and folders become documents with the end of text between them") {
  folder.write("one.txt", "the world");
  folder.write("folder/b.txt", "\xff\xff ing");
  folder.write("folder/a/x.md", "aaaa<|endoftext|>");
  folder.write("folder/empty.txt", "");
  folder.write("folder/image.png", std::string("\x89\0", 2));
  succeeds("one.txt folder --output out");
  CHECK(tokens_of("out.bin") == expected({"the world", "aaaa", "", "\xff\xff ing"}));
  succeeds("one.txt --output out.bin");
  CHECK(tokens_of("out.bin") == expected({"the world"}));
  succeeds("one.txt folder --output out --end-of-text none --special-tokens none");
  CHECK(tokens_of("out.bin").size() == expected({"the world", "aaaa<|endoftext|>", "\xff\xff ing"}).size() - 2);
  succeeds("one.txt --output out --end-of-text after-each");
  CHECK(tokens_of("out.bin") == expected({"the world", ""}));
  succeeds("folder/a --output out --spelled-specials token");
  CHECK(tokens_of("out.bin") == expected({"aaaa", ""}));
  CHECK(!fs::exists(folder.path() / "out.bin.partial"));
}

TEST_CASE_FIXTURE(Fixture, "a token file has the tokens of a training run on the same text") {
  folder.write("t/tokenizer.json", small.framed_json("<s> A"));
  folder.write("t/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  folder.write("d/a.jsonl", R"({"text": "the<|user|>in"})"
                            "\n"
                            R"({"text": "aa"})"
                            "\n");
  folder.write("d/b.txt", "the </s>");
  tokenizer = folder.path() / "t";
  using models::SpecialTokenPolicy;
  for (const auto& [name, policy] : {std::pair{"tokenizer", SpecialTokenPolicy::tokenizer},
                                     {"text", SpecialTokenPolicy::text},
                                     {"none", SpecialTokenPolicy::none}}) {
    succeeds("d --output out --special-tokens " + std::string(name));
    const models::Tokenizer read = models::read_tokenizer(tokenizer);
    const models::TokenSequence trained(folder.path() / "d", {}, {.tokenizer = &read, .specials = policy});
    Tokens tokens(static_cast<std::size_t>(trained.tokens()));
    trained.read(0, trained.tokens(), read.size(), tokens.data());
    CHECK(tokens_of("out.bin") == tokens);
  }
  succeeds("d --output out --spelled-specials token");
  const Tokens older_name = tokens_of("out.bin");
  succeeds("d --output out");
  CHECK(tokens_of("out.bin") == older_name);
  succeeds("d --output out --spelled-specials text");
  const Tokens older_text = tokens_of("out.bin");
  CHECK(older_text != older_name);
  succeeds("d --output out --special-tokens none");
  CHECK(tokens_of("out.bin") == older_text);
  check_has(tokenize("d --output out --special-tokens text --spelled-specials text --tokenizer " + tokenizer).text,
            {"remove --spelled-specials"});
}

TEST_CASE_FIXTURE(Fixture, "pieces, threads and checkpoints do not change any token") {
  const std::string text = long_text(2000);
  const std::string other = text.substr(1, static_cast<std::size_t>(effort(5000, 5000, 1000)));
  folder.write("a.txt", text);
  folder.write("b.txt", other);
  const Tokens tokens = expected({text, other});
  for (const std::string how : {"--threads 1", "--threads 3 --checkpoint 999"}) {
    succeeds("a.txt b.txt --output out " + how);
    CHECK(tokens_of("out.bin") == tokens);
  }
  const std::string beginning = text.substr(0, 300);  // as many checkpoints as words
  folder.write("a.txt", beginning);
  succeeds("a.txt b.txt --output out --threads 2 --checkpoint 1");
  CHECK(tokens_of("out.bin") == expected({beginning, other}));
}

TEST_CASE_FIXTURE(Fixture, "each of JSON lines is a document, compressed or not, in any number of files") {
  const std::string lines =
      "{\"text\": \"the world\"}\n\n{\"text\": \"\"}\n{\"id\": 1, \"text\": \"in the end\"}\n";
  folder.write("a.jsonl", lines);
  folder.write("b.jsonl.gz", gzipped(lines));
  folder.write("c.txt.zst", zstd_packed("aaaa"));
  folder.write("none.jsonl", "\n");
  const Tokens twice = expected({"the world", "in the end", "the world", "in the end", "aaaa"});
  for (const char* checkpoint : {"256MiB", "1"}) {
    CAPTURE(checkpoint);
    succeeds("a.jsonl b.jsonl.gz none.jsonl c.txt.zst --output out --checkpoint " + std::string(checkpoint));
    CHECK(tokens_of("out.bin") == twice);
  }
  const CommandOutput outcome = tokenize("a.jsonl b.jsonl.gz --output out --tokenizer " + tokenizer);
  check_has(outcome.text, {"4 documents in 2 files of "});
  succeeds("a.jsonl --output out --end-of-text after-each");
  CHECK(tokens_of("out.bin") == expected({"the world", "in the end", ""}));
  folder.write("body.jsonl", "{\"body\": \"the\"}\n");
  succeeds("body.jsonl --output out --json-field body");
  CHECK(tokens_of("out.bin") == expected({"the"}));
  succeeds("a.jsonl --output out --input-format text");
  CHECK(tokens_of("out.bin") == expected({lines}));
  folder.write("bad.jsonl", lines + "oops\n");
  const std::string with = " --output out --tokenizer " + tokenizer;
  refused("a.jsonl bad.jsonl" + with, "bad.jsonl: line 5: not JSON");
  refused(
      "body.jsonl" + with,
      "body.jsonl: line 1: field 'text' is missing, found 'body'; name the field of the text with --json-field");
}

TEST_CASE_FIXTURE(Fixture, "files that are not text are refused, and skipped or damaged ones are reported") {
  const std::string with = " --output out --tokenizer " + tokenizer;
  folder.write("a.npy", std::string("\x93NUMPY\1\0", 8) + "{}");
  refused("a.npy" + with, "a.npy: a NumPy array (.npy); ");
  refused("a.npy" + with, "use --input-format text");
  folder.write("tokens.bin", std::string(100, '\1'));
  refused("tokens.bin" + with, "--input-format text if tokens.bin is text");
  folder.write("d/a.txt", "the world \xe4");
  folder.write("d/image.png", "\x89PNG\r\n");
  const CommandOutput outcome = tokenize("d" + with);
  INFO(outcome.text);
  CHECK(outcome.status == 0);
  check_has(outcome.text, {"d: skipped 1 file: image.png (an image (PNG))\n",
                           "d/a.txt: 1 of the 11 bytes examined are not UTF-8, the first at offset 10\n"});
}

TEST_CASE_FIXTURE(Fixture, "existing token files are replaced only with --overwrite") {
  folder.write("one.txt", "the world");
  folder.write("two.txt", "aaaa");
  succeeds("one.txt --output out");
  for (const char* name : {"out", "out.bin"}) {
    const CommandOutput outcome = tokenize("two.txt --tokenizer " + tokenizer + " --output " + name, false);
    INFO(outcome.text);
    CHECK(WEXITSTATUS(outcome.status) == 64);
    check_has(outcome.text, {"out.bin; add --overwrite"});
  }
  CHECK(tokens_of("out.bin") == expected({"the world"}));
  succeeds("two.txt --output out");  // with --overwrite
  CHECK(tokens_of("out.bin") == expected({"aaaa"}));
}

TEST_CASE_FIXTURE(
    Fixture,
    "a killed run leaves no file, and ends with the same bytes when started again, between documents too") {
  folder.write("text.txt", long_text(static_cast<std::size_t>(effort(100'000, 400'000, 25'000))));
  std::string lines;
  for (int i = 0; i < 100'000; ++i) lines += "{\"text\": \"the world " + std::to_string(i) + "\"}\n";
  folder.write("a.jsonl.zst", zstd_packed(lines));
  for (const auto& [name, format, documents] : {std::tuple{"text.txt", "llmc", "1 documents"},
                                                {"text.txt", "megatron", "1 documents"},
                                                {"a.jsonl.zst", "megatron", "100000 documents"}}) {
    CAPTURE_ALL(name, format);
    const std::string with = fmt::format("{} --output-format {} --output ", name, format);
    succeeds(with + "whole");
    interrupt({name, "--output", "out", "--output-format", format});
    CHECK(!fs::exists(folder.path() / "out.bin"));
    CHECK(!fs::exists(folder.path() / "out.idx"));
    const CommandOutput again = tokenize(with + "out --tokenizer " + tokenizer);
    INFO(again.text);
    CHECK(again.status == 0);
    check_has(again.text, {"continued an interrupted run after ", fmt::format("{} in 1 files of ", documents)});
    CHECK((folder.read("out.bin") == folder.read("whole.bin")));
    CHECK((folder.read("out.idx") == folder.read("whole.idx")));
    for (const char* file : {"out.bin", "out.idx", "whole.bin", "whole.idx"}) fs::remove(folder.path() / file);
  }
}

TEST_CASE_FIXTURE(Fixture, "invalid input is refused by one message that names it") {
  folder.write("a.txt", "the");
  folder.write("empty.txt", "");
  const std::string with = " --tokenizer " + tokenizer;
  refused("--output out" + with, "input is missing");
  refused("a.txt --output out", "--tokenizer is missing");
  refused("a.txt" + with, "--output is missing");
  refused("a.txt --output out --tokenizer bytes", "PATH of a tokenizer");
  refused("a.txt --output out --tokenizer gpt2:nowhere", "nowhere: not found");
  refused("a.txt none.txt --output out" + with, "none.txt: cannot be read: No such file");
  refused("empty.txt --output out" + with, "no text in input: empty.txt");
  refused("a.txt --output none/out" + with, "none/out.bin.partial: No such file");
  refused("a.txt --output out --output-format arrow" + with, "one of llmc, megatron");
  refused("a.txt --output out --outptu-format llmc" + with, "did you mean --output-format?");
  CHECK(!fs::exists(folder.path() / "out.bin"));
  check_has(tokenize("--help").text, {"--output-format"});
  CHECK(tokenize("--version").status == 0);
}
