#include "apps/program/manual.hpp"

#include "apps/bench/bench_options.hpp"
#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/generate/generate_options.hpp"
#include "apps/options/train_options.hpp"
#include "apps/plan/plan_options.hpp"
#include "apps/report/report_options.hpp"
#include "apps/tokenize/tokenize_options.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

std::vector<Manual> all_manuals() {
  return {train_manual("ranvier-train"),
          generate_manual(),
          tokenize_manual(),
          checkpoint_manual(),
          plan_manual(),
          report_manual(),
          bench_manual()};
}

std::string escaped_dashes(const std::string& name) {
  std::string out;
  for (const char c : name) out += c == '-' ? std::string("\\-") : std::string(1, c);
  return out;
}

/// Output of a shell command on both streams.
CommandOutput output_of(const std::string& command) { return output_of_command("{ " + command + " ; } 2>&1"); }

bool is_there(const char* program) {
  return output_of(std::string("command -v ") + program + " >/dev/null").status == 0;
}

/// A line as readline splits it; the last word is the one to complete.
struct Typed {
  std::vector<std::string> words;
  std::vector<std::string> completed;  ///< sorted
};

/// Quotes a word for a shell.
std::string quoted(const std::string& word) { return "'" + word + "'"; }

}  // namespace

TEST_CASE("help, manual page and completion scripts of every program name all of its flags") {
  for (const Manual& manual : all_manuals()) {
    CAPTURE(manual.program);
    const std::string help = help_text(manual, "all"), man = man_page(manual);
    const std::string bash = bash_completion(manual), zsh = zsh_completion(manual);
    CHECK(help.starts_with(manual.program + " "));
    REQUIRE(manual.options.size() > 8);
    for (const apps::OptionInfo& option : manual.options) {
      CAPTURE(option.name);
      check_has(help, {"\n  --" + option.name + " "});
      check_has(man, {"\n.TP\n\\fB\\-\\-" + escaped_dashes(option.name) + "\\fR"});
      CHECK((has(bash, "--" + option.name + " ") || has(bash, "--" + option.name + "'")));
      CHECK((has(zsh, "'--" + option.name + "[") || has(zsh, "'--" + option.name + "=[")));
    }
    for (const char* flag : {"help", "version", "completion", "man"})
      check_has(help, {std::string("\n  --") + flag});
    for (const std::string& text : {help, man, bash, zsh}) CHECK_FALSE(text.ends_with('\n'));
  }
}

TEST_CASE("help about one topic has only its flags, and an unknown topic lists the existing ones") {
  const Manual train = train_manual("ranvier-train");
  for (const Flags& flags : std::vector<Flags>{"--help memory-tiers",
                                               "--help Memory tiers",
                                               "-h tiers",
                                               "--help=MEM",
                                               {"--data", "corpus", "--help", "memory tiers", "--seed", "3"}}) {
    const RunOptions run = parse_train(flags, 1).run;
    CHECK(run.request == Request::info);
    CHECK(run.info.concern == "Memory tiers");
    const std::string text = answer(run.info, train);
    CHECK(text.starts_with("Memory tiers\n  --offload NAME "));
    check_has(text, {"\n  --optimizer-commit "});
    check_lacks(text, {"--g-inter N", "\n\n"});
  }
  CHECK(parse_train("--help", 1).run.info.concern.empty());
  check_has(help_text(train, "Model"), {"presets: gpt2-small, "});
  const std::string usual = help_text(train);
  CHECK(usual.starts_with("ranvier-train trains"));
  check_has(usual, {"\n  --g-inter N"});
  check_lacks(usual, {"\n  --optimizer-commit ", "presets: "});
  for (const auto& option : train.options)  // a misspelled name in the list of usual flags is found here
    if (option.usual) CHECK(has(usual, "\n  --" + option.name + " "));
  CHECK(std::count_if(train.options.begin(), train.options.end(), [](const auto& each) { return each.usual; }) ==
        42);
  CHECK(parse_train("-h", 1).run.info.help);
  check_usage_error(
      {"--help elephants: the help text has no such heading; use all, or one of model, grid, sharding, ",
       ", stopping-and-resuming, "},
      [] { static_cast<void>(parse_train("--help elephants", 1)); });
  // Two topics have such a word.
  CHECK(says(printed_error_of([] { static_cast<void>(parse_train("--help p", 1)); }),
             "--help p: the help text has no such heading"));
}

TEST_CASE("bash completes flags, values, commands and paths, also after mpirun") {
  if (!is_there("bash")) return;
  const TemporaryFolder folder;
  std::string driver = "export LC_ALL=C\n";
  for (const Manual& manual : all_manuals())
    driver += "source " + folder.write(manual.program + ".bash", bash_completion(manual) + "\n").string() + "\n";
  folder.write("here/corpus.txt", "text");
  folder.write("here/two words.txt", "text");
  folder.write("here/disks/state", "text");
  const Typed cases[] = {
      {{"ranvier-train", "--poli"}, {"--policy"}},
      {{"ranvier-train", "--policy", "z"}, {"zb-h1", "zero-bubble"}},
      {{"ranvier-train", "--policy", "=", "zero"}, {"zero-bubble"}},
      {{"ranvier-train", "--shuffle", "="}, {"off", "on"}},
      {{"ranvier-train", "--dry-run", "--world", ""}, {}},
      {{"ranvier-train", "--data", ""}, {"corpus.txt", "disks", "two words.txt"}},
      {{"ranvier-train", "--data", "two"}, {"two words.txt"}},
      {{"ranvier-train", "--checkpoint", ""}, {"disks"}},
      {{"ranvier-train", "--nvme", "disks,d"}, {"disks,disks"}},
      {{"ranvier-train", "--resume", "a"}, {"auto"}},
      {{"ranvier-train", "--resume", "cor"}, {"corpus.txt"}},
      {{"ranvier-train", "--profile", "v100-16"}, {"v100-16g-summit"}},
      {{"ranvier-train", "--help", "mem"}, {"memory-tiers"}},
      {{"ranvier-train", "--help", "--vers"}, {"--version"}},
      {{"ranvier-train", "--quiet", "--tensorb"}, {"--tensorboard"}},
      {{"mpirun", "-n", "4", "build/apps/ranvier-train", "--quie"}, {"--quiet"}},
      {{"mpirun", "-n", "4", "hostname", "--quie"}, {}},
      {{"ranvier-plan", "--g-i"}, {"--g-inter"}},
      {{"ranvier-checkpoint", "ver"}, {"verify"}},
      {{"ranvier-checkpoint", "verify", "di"}, {"diff", "disks"}},
      {{"ranvier-bench", "pro"}, {"profile"}},
      {{"ranvier-bench", "--collectives", "all-gather,all-r"}, {"all-gather,all-reduce"}},
      {{"ranvier-report", "corp"}, {"corpus.txt"}},
      {{"ranvier-generate", "--precision", "f"}, {"fp16", "fp32"}},
      {{"ranvier-tokenize", "--output-format", "meg"}, {"megatron"}},
  };
  driver += "cd " + (folder.path() / "here").string() + "\n";
  for (const auto& [words, completed] : cases) {
    driver += "COMP_WORDS=(";
    for (const std::string& word : words) driver += quoted(word) + " ";
    // The function that bash would call for the first word.
    driver +=
        ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()\n"
        "spec=$(complete -p \"${COMP_WORDS[0]}\") && spec=${spec##*-F } && ${spec%% *}\n"
        "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\" | sort\n"
        "echo ==\n";
  }
  const std::string path = folder.write("driver.bash", driver).string();
  const CommandOutput output = output_of("env -u BASH_ENV bash --norc --noprofile " + path);
  std::istringstream lines(output.text);
  for (const auto& [words, completed] : cases) {
    INFO("words.front() ", words.front(), ", words.back() ", words.back());
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line) && line != "==";) found.push_back(line);
    CHECK(found == completed);
  }
  std::string more;
  CHECK_FALSE(std::getline(lines, more));
}

TEST_CASE("zsh accepts its scripts") {
  for (const Manual& manual : all_manuals()) {  // zsh calls the function with the file's name
    const std::string script = zsh_completion(manual);
    CHECK(script.starts_with("#compdef " + manual.program + "\n"));
    check_has(script, {"\n_" + manual.program + "() {\n"});
  }
  if (!is_there("zsh")) return;
  const TemporaryFolder folder;
  for (const Manual& manual : all_manuals()) {
    const std::string path = folder.write("_" + manual.program, zsh_completion(manual) + "\n").string();
    const CommandOutput output = output_of("zsh -f -n " + path);
    CHECK(output.status == 0);
    CHECK(output.text == "");
  }
}

TEST_CASE("groff prints no warnings about manual pages, and the text of help") {
  if (!is_there("groff")) return;
  const TemporaryFolder folder;
  for (const Manual& manual : all_manuals()) {
    CAPTURE(manual.program);
    const std::string page = man_page(manual) + "\n";
    CHECK(std::all_of(page.begin(), page.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
    const std::string path = folder.write(manual.program + ".1", page).string();
    const CommandOutput warnings = output_of("groff -ww -man -Tutf8 -z -rLL=200n " + path);
    CHECK(warnings.status == 0);
    CHECK(warnings.text == "");
    // Without hyphenation and justification, and as one long line: the words of the help text have the same order.
    const CommandOutput shown = output_of("groff -man -Tutf8 -P-cbou -rLL=900n -rHY=0 " + path);
    for (const apps::OptionInfo& option : manual.options) {
      CAPTURE(option.name);
      check_has(shown.text, {"--" + option.name});
    }
    check_has(shown.text, {"EXIT STATUS", manual.summary});
  }
}
