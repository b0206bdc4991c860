// User errors: one message from one rank that names the cause and the remedy, within seconds and before training, and a
// matching exit status.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr auto limit = 20s;

using Words = std::vector<std::string>;

constexpr int usage = 64, data = 65;  // exit statuses

/// Checks that the job's single message has all of `words`, and that nothing was trained.
void check_refused(const Outcome& outcome, const Words& words) {
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status >= usage);  // not a shell's status, and not 1
  check_lacks("\n" + outcome.output, {"\nstep "});
  const Words messages = errors_of(outcome);
  REQUIRE(messages.size() == 1);
  check_has(messages[0], words);
}

struct Case {
  Flags flags;
  Words words;
  int status = 0;  ///< 0: any error
};

struct Fixture : SmallText {
  void check_refused(const std::vector<Case>& cases) const {
    for (const auto& [flags, words, status] : cases) {
      CAPTURE(flags.line());
      const Outcome outcome = run(2, small_run(text, flags), limit);
      ::check_refused(outcome, words);
      if (status != 0) CHECK(outcome.status == status);
    }
  }
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    return folder.write(name, content).string();
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "processes started by another MPI's launcher, each a separate world, are refused") {
  const Environment launcher = {{"PMI_SIZE", "2"}};  // in the format of MPICH's mpirun -n 2
  const Outcome outcome = run(1, small_run(text), limit, launcher);
  ::check_refused(outcome, {"the launcher started 2", "Open MPI", "found 1", "--separate-ranks"});
  CHECK(outcome.status == usage);
  CHECK(run(1, small_run(text, {"--separate-ranks"}), limit, launcher).status == 0);
}

TEST_CASE_FIXTURE(Fixture, "unknown flags, tiers that need other flags and links files without links are refused") {
  const std::string link = R"({"latency_seconds": 1e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 6e9})";
  const std::string inter = write("inter.json", R"({"inter_node": )" + link + "}");
  const std::string intra = write("intra.json", R"({"intra_node": )" + link + "}");
  check_refused(
      {{"--lerning-rate 1e-3", {"lerning-rate", "--learning-rate"}, usage},
       {"--activation-tier host", {"--activation-tier host", "--recompute auto"}},
       {"--optimizer-commit flip", {"--optimizer-commit flip", "--optimizer-tier host"}},
       {"--optimizer-tier nvme --nvme /not/there", {"/not/there: No such file or directory", "--nvme"}},
       {"--optimizer-commit flip --optimizer-tier host --precision fp32",
        {"--optimizer-commit flip", "--precision bf16"}},
       {"--links " + inter, {"--links " + inter, "links of class 'intra_node'", "ranvier-bench --write-links"}},
       {"--links " + intra + " --node-size 1", {"--links " + intra, "links of class 'inter_node'"}}});
}

// Every kind of damage is in the tests of the file readers in tests/models.
TEST_CASE_FIXTURE(Fixture, "missing, too short, damaged and unsuitable data are refused") {
  std::vector<std::uint16_t> tokens(1000, 7);
  const std::string valid = token_file(tokens), plain = write("tokens.bin", valid);
  tokens[900] = 256;
  const std::string empty = write("empty.txt", ""), none = file("none.txt"), nothing = make_folder("nothing"),
                    truncated = write("truncated.bin", valid.substr(0, valid.size() - 2)),
                    outside = write("outside.bin", token_file(tokens)),
                    questions = write("questions.bin", std::string(2000, '\1'));
  check_refused(
      {{{"--data", ""}, {"--data"}},
       {"--data " + none, {none}},
       {"--data " + nothing, {nothing}},
       {"--data " + empty, {"empty", empty}},
       {"--sequence-length 100000", {"--sequence-length 100000", text}},
       {"--data " + truncated, {"1000", truncated}},
       {"--data " + outside, {"256", "--vocab-size", outside}},
       {"--vocab-size 100", {"--vocab-size", text}},
       {"--prompt-field ask", {"text.txt: --prompt-field ask needs JSON lines"}},
       {"--documents mask --data " + plain, {"tokens.bin: --documents mask", "--document-end", "--documents join"}},
       {"--hellaswag " + questions, {questions, "offset 0"}, data},
       {"--data " + plain + " --sample-every 2", {"--sample-every 2", "--tokenizer PATH"}},
       {"--vocab-size 123 --sample-every 2 --sample-prompt {}", {"--sample-prompt '{}'", "123, but the model"}}});
}

TEST_CASE_FIXTURE(
    Fixture, "missing, damaged and unsuitable weights are refused, and an error about NaN does not blame the run") {
  const std::string valid = file("valid.safetensors"), none = file("none.safetensors");
  ends_well(1, "--steps 1 --save " + valid, limit);
  const std::string content = read_file(valid);
  std::uint64_t header = 0;
  std::memcpy(&header, content.data(), sizeof header);
  const std::string first = R"("ln_f.bias":{"dtype":"F32","shape":[32],"data_offsets":[)";
  const auto at = content.find(first);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = sizeof header + header + std::stoul(content.substr(at + first.size()));
  std::string with_nan = content;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(with_nan.data() + begin + sizeof nan, &nan, sizeof nan);
  const std::string truncated = write("truncated.safetensors", content.substr(0, content.size() - 4)),
                    broken = write("nan.safetensors", with_nan);
  check_refused({{"--init-from " + none, {none}},
                 {"--init-from " + truncated, {truncated}},
                 {"--init-from " + broken, {"tensor 'ln_f.bias' has nan at element 1", "damaged", broken}},
                 {"--init-from " + valid + " --hidden 64", {valid, "--hidden 64", "which has 32"}}});
}

TEST_CASE_FIXTURE(Fixture, "outputs that conflict or cannot be written are refused before anything is written") {
  const std::string log = file("log"), inside = text + "/inside.a.file", before = read_file(text);
  check_refused({{"--save " + inside, {"--save", inside}},
                 {"--metrics " + inside, {"--metrics", inside}},
                 {"--trace " + inside, {"--trace", inside}},
                 {"--metrics " + log + " --trace " + file("./log"), {"--metrics " + log, "--trace"}},
                 {"--metrics " + text, {"--metrics " + text, "--data " + text}}});
  CHECK_FALSE(std::filesystem::exists(log));
  CHECK(read_file(text) == before);
}

TEST_CASE_FIXTURE(Fixture, "a model that exceeds the machine's memory is refused with the reason first") {
  const Outcome outcome = run(2, small_run(text, {"--hidden", "65536", "--layers", "96"}), limit);
  ::check_refused(outcome, {"needed by its 2 ranks", "available: the "});
  const auto remedy =
      outcome.output.find("use more ranks, --precision bf16, --offload infinity-nvme with --nvme DIR");
  REQUIRE(remedy != std::string::npos);
  CHECK(remedy > outcome.output.find("available: "));
}

TEST_CASE_FIXTURE(Fixture, "too small a device memory is refused with the table and a remedy") {
  const Outcome outcome = run(2, small_run(text, {"--device-memory", "100KiB"}), limit);
  ::check_refused(outcome, {});
  check_has(outcome.output, {"parameters", "activations", "total", "of the budget of 100.0 KiB is free",
                             "closest: ", " needed, 100.0 KiB available", "use more ranks, --precision bf16"});
}

TEST_CASE_FIXTURE(Fixture, "ranks with different options are refused") {
  Job job({small_run(text, {"--learning-rate", "1e-3"}), small_run(text, {"--learning-rate", "2e-3"})});
  ::check_refused(job.wait(limit), {"options differ between ranks", "--learning-rate", "0.001"});
}
