// Information flags of every program, each in a separate process.
#include "runtime/device/cuda_build.hpp"
#include "tests/test.hpp"

#include <sys/wait.h>

#include <regex>

using namespace ranvier::tests;

namespace {

struct Answer {
  int status = -1;
  std::vector<std::string> lines;
};

Answer ask(const std::string& program, const std::string& flags) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const CommandOutput output = output_of_command(program + " " + flags);
  return {output.status, lines_of(output.text)};
}

struct Program {
  const char* name;
  const char* path;
  bool has_ranks;
};
constexpr Program programs[] = {
    {"ranvier-train", RANVIER_TRAIN, true},        {"ranvier-generate", RANVIER_GENERATE, false},
    {"ranvier-tokenize", RANVIER_TOKENIZE, false}, {"ranvier-checkpoint", RANVIER_CHECKPOINT, false},
    {"ranvier-plan", RANVIER_PLAN, false},         {"ranvier-report", RANVIER_REPORT, false},
    {"ranvier-bench", RANVIER_BENCH, true},        {"ranvier-example-stage", RANVIER_EXAMPLE, true}};

}  // namespace

TEST_CASE("every program names its version, commit, devices and libraries, and those with ranks their MPI") {
  for (const auto& [name, path, has_ranks] : programs) {
    CAPTURE(name);
    const Answer answer = ask(path, "--version");
    CHECK(WIFEXITED(answer.status));
    CHECK(WEXITSTATUS(answer.status) == 0);
    REQUIRE(answer.lines.size() == 4);
    CHECK(answer.lines[0] == std::string(name) + " " RANVIER_VERSION);
    CHECK(std::regex_match(answer.lines[1], std::regex("commit: (unknown|[0-9a-f]{12,40}(-dirty)?)")));
    CHECK(answer.lines[2].starts_with("devices: cpu"));
    CHECK(has(answer.lines[2], "cuda") == ranvier::runtime::with_cuda);
    // Each library with its version, which CMake reads from headers in very different formats.
    std::istringstream libraries(answer.lines[3].substr(std::string("libraries: ").size()));
    std::string known;
    for (std::string library; std::getline(libraries, library, ',');) {
      CHECK_MESSAGE(std::regex_match(library, std::regex(" ?[A-Za-z0-9 ]+ v?[0-9]+(\\.[0-9a-z]+)+")), library);
      known += library.substr(0, library.rfind(' ')) + ";";
    }
    for (const char* expected :
         {"Boost;", "fmt;", "oneDNN;", "liburing;", "PCRE2;", "utf8proc;", "zstd;", "xxHash;", "zlib;"})
      check_has(known, {expected});
    CHECK(has(known, "MPI") == has_ranks);
  }
}

TEST_CASE("every program prints a topic of its help, and a completion script for itself") {
  for (const auto& [name, path, has_ranks] : programs) {
    CAPTURE(name);
    const Answer help = ask(path, "--help program");
    CHECK(help.status == 0);
    REQUIRE(help.lines.size() >= 5);
    CHECK(help.lines[0] == "Program");
    CHECK(help.lines[1].starts_with("  --help [HEADING] "));
    CHECK(std::all_of(help.lines.begin() + 1, help.lines.end(), [](const auto& l) { return l.starts_with("  "); }));
    const Answer script = ask(path, "--completion bash");
    CHECK(script.status == 0);
    REQUIRE(script.lines.size() > 20);
    CHECK(script.lines[0] == "# Completion of " + std::string(name) + " " RANVIER_VERSION " for bash, made by " +
                                 name + " --completion bash.");
  }
}
