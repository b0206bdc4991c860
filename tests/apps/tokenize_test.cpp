// ranvier-tokenize as a user starts it, and its options.
#include "apps/tokenize_options.hpp"
#include "models/text/token_sequence.hpp"
#include "tests/models/small_tokenizer.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>

using namespace ranvier;
using ranvier::tests::error_of;
using ranvier::tests::says;
using ranvier::tests::SmallTokenizer;
using ranvier::tests::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

using Tokens = std::vector<std::int32_t>;

struct Outcome {
  int status = 0;
  std::string output;
};

struct Fixture {
  TemporaryFolder folder;
  SmallTokenizer small;
  std::string tokenizer = "gpt2:" + folder.write("tokenizer.json", small.tokenizer_json()).string();

  Outcome tokenize(const std::string& arguments) const {
    const std::string command = "cd " + folder.path().string() + " && " RANVIER_TOKENIZE " " + arguments + " 2>&1";
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Outcome outcome;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) outcome.output += static_cast<char>(c);
    outcome.status = ::pclose(pipe);
    return outcome;
  }
  void succeeds(const std::string& arguments) const {
    const Outcome outcome = tokenize(arguments + " --tokenizer " + tokenizer);
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
  }
  void refused(const std::string& arguments, const std::string& words) const {
    const Outcome outcome = tokenize(arguments);
    INFO(outcome.output);
    CHECK(outcome.status != 0);
    CHECK(outcome.output.starts_with("ranvier-tokenize: error: "));
    CHECK(outcome.output.find(words) != std::string::npos);
  }
  [[nodiscard]] Tokens tokens_of(const std::string& name) const {
    const models::TokenFile file(folder.path() / name, models::TokenFormat::llmc);
    Tokens tokens(static_cast<std::size_t>(file.tokens()));
    file.read(0, file.tokens(), tokens.data());
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
    text += "the world re" + std::to_string(i * 2654435761u % 1000) + " 's aaaa\n\n  in the end \xff\n";
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
  CHECK(tokens_of("out.bin") == expected({"the world", "aaaa<|endoftext|>", "\xff\xff ing"}));
  succeeds("one.txt --output out.bin");
  CHECK(tokens_of("out.bin") == expected({"the world"}));
  succeeds("one.txt folder --output out --end-of-text none");
  CHECK(tokens_of("out.bin").size() == expected({"the world", "aaaa<|endoftext|>", "\xff\xff ing"}).size() - 2);
  succeeds("one.txt --output out --end-of-text after-each");
  CHECK(tokens_of("out.bin") == expected({"the world", ""}));
  succeeds("folder/a --output out --spelled-specials token");
  CHECK(tokens_of("out.bin") == expected({"aaaa", ""}));
  CHECK(!fs::exists(folder.path() / "out.bin.partial"));
}

TEST_CASE_FIXTURE(Fixture, "no piece, thread or checkpoint changes a token") {
  const std::string text = long_text(2000);
  folder.write("a.txt", text);
  folder.write("b.txt", text.substr(1, 5000));
  const Tokens tokens = expected({text, text.substr(1, 5000)});
  for (const char* how : {"--threads 1", "--threads 3 --checkpoint 999", "--threads 2 --checkpoint 1"}) {
    if (std::string_view(how).ends_with(" 1") && std::string_view(how).starts_with("--threads 2"))
      folder.write("a.txt", text.substr(0, 300));  // as many checkpoints as words
    succeeds("a.txt b.txt --output out " + std::string(how));
    if (!std::string_view(how).starts_with("--threads 2")) CHECK(tokens_of("out.bin") == tokens);
  }
  CHECK(tokens_of("out.bin") == expected({text.substr(0, 300), text.substr(1, 5000)}));
}

TEST_CASE_FIXTURE(Fixture,
                  "a run that was killed leaves no file, and goes on to the same bytes when started again") {
  folder.write("text.txt", long_text(400'000));
  for (const std::string format : {"llmc", "megatron"}) {
    succeeds("text.txt --output whole --output-format " + format);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
      ::close(STDOUT_FILENO);
      ::execl(RANVIER_TOKENIZE, RANVIER_TOKENIZE, "text.txt", "--output", "out", "--output-format", format.c_str(),
              "--checkpoint", "64KiB", "--threads", "1", "--tokenizer", tokenizer.c_str(), nullptr);
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
    CHECK(!fs::exists(folder.path() / "out.bin"));
    CHECK(!fs::exists(folder.path() / "out.idx"));
    const Outcome again = tokenize("text.txt --output out --output-format " + format + " --tokenizer " + tokenizer);
    CHECK(again.status == 0);
    CHECK(again.output.find("went on after ") != std::string::npos);
    CHECK(folder.read("out.bin") == folder.read("whole.bin"));
    CHECK(folder.read("out.idx") == folder.read("whole.idx"));
    for (const char* name : {"out.bin", "out.idx", "whole.bin", "whole.idx"}) fs::remove(folder.path() / name);
  }
}

TEST_CASE_FIXTURE(Fixture, "what cannot be tokenized is refused by one message that names it") {
  folder.write("a.txt", "the");
  folder.write("empty.txt", "");
  const std::string with = " --tokenizer " + tokenizer;
  refused("--output out" + with, "name files or folders of text");
  refused("a.txt --output out", "--tokenizer is missing");
  refused("a.txt" + with, "--output is missing");
  refused("a.txt --output out --tokenizer bytes", "give gpt2:PATH");
  refused("a.txt --output out --tokenizer gpt2:nowhere", "nowhere: there is no such folder or file");
  refused("a.txt none.txt --output out" + with, "none.txt: cannot be read: No such file");
  refused("empty.txt --output out" + with, "there is no text in it");
  refused("a.txt --output none/out" + with, "none/out.bin.partial: cannot create it");
  refused("a.txt --output out --output-format arrow" + with, "one of llmc, megatron");
  refused("a.txt --output out --outptu-format llmc" + with, "did you mean --output-format?");
  CHECK(!fs::exists(folder.path() / "out.bin"));
  CHECK(tokenize("--help").output.find("--output-format") != std::string::npos);
  CHECK(tokenize("--version").status == 0);
}
