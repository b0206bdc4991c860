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

struct Fixture : SmallText {
  void check_refused(int ranks, const Flags& more, const Words& words, int status = 0) const {
    const Outcome outcome = run(ranks, small_run(text, more), limit);
    ::check_refused(outcome, words);
    if (status != 0) CHECK(outcome.status == status);
  }

  void check_data_refused(const std::string& name, const std::string& content, Words words, Flags more = {}) const {
    const std::string path = folder.write(name, content).string();
    more.insert(more.begin(), {"--data", path});
    words.push_back(path);
    check_refused(2, more, words);
  }
};

/// A safetensors file with this header and `data_bytes` of zeros.
std::string weights_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string content(sizeof length, '\0');
  std::memcpy(content.data(), &length, sizeof length);
  return content + header + std::string(data_bytes, '\0');
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
}

/// With the weights of a small run.
struct WeightsFixture : Fixture {
  std::string valid;

  WeightsFixture() {
    const std::string path = file("valid.safetensors");
    ends_well(1, {"--steps", "1", "--save", path}, limit);
    valid = read_file(path);
  }

  [[nodiscard]] std::string header() const {
    std::uint64_t length = 0;
    std::memcpy(&length, valid.data(), sizeof length);
    return valid.substr(sizeof length, length);
  }
  [[nodiscard]] std::size_t data_bytes() const { return valid.size() - sizeof(std::uint64_t) - header().size(); }

  void check_weights_refused(const std::string& content, Words words) const {
    const std::string path = folder.write("damaged.safetensors", content).string();
    words.push_back(path);
    check_refused(2, {"--init-from", path}, words);
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

TEST_CASE_FIXTURE(Fixture, "a links file without the links between the ranks is refused") {
  const std::string link = R"({"latency_seconds": 1e-6, "bytes_per_second": 6e9, "node_bytes_per_second": 6e9})";
  const std::string inter = folder.write("inter.json", R"({"inter_node": )" + link + "}").string();
  const std::string intra = folder.write("intra.json", R"({"intra_node": )" + link + "}").string();
  check_refused(2, {"--links", inter},
                {"--links " + inter, "links of class 'intra_node'", "ranvier-bench --write-links"});
  check_refused(2, {"--links", intra, "--node-size", "1"}, {"--links " + intra, "links of class 'inter_node'"});
}

TEST_CASE_FIXTURE(Fixture, "tiers that need other flags are refused") {
  check_refused(2, {"--activation-tier", "host"}, {"--activation-tier host", "--recompute auto"});
  check_refused(2, {"--optimizer-commit", "flip"}, {"--optimizer-commit flip", "--optimizer-tier host"});
  check_refused(2, {"--optimizer-commit", "flip", "--optimizer-tier", "host", "--precision", "fp32"},
                {"--optimizer-commit flip", "--precision bf16"});
}

TEST_CASE_FIXTURE(Fixture, "an unknown flag is refused with the nearest name") {
  check_refused(2, {"--lerning-rate", "1e-3"}, {"lerning-rate", "--learning-rate"}, usage);
}

TEST_CASE_FIXTURE(Fixture, "missing, empty or too short data are refused") {
  check_refused(2, {"--data", ""}, {"--data"});
  check_refused(2, {"--data", file("none.txt")}, {file("none.txt")});
  std::filesystem::create_directory(file("nothing"));
  check_refused(2, {"--data", file("nothing")}, {file("nothing")});
  check_data_refused("empty.txt", "", {"empty"});
  check_data_refused("empty.bin", "", {});
  check_refused(2, {"--sequence-length", "100000"}, {"--sequence-length 100000", text});
}

TEST_CASE_FIXTURE(Fixture, "a damaged token file is refused") {
  const std::string valid = token_file(std::vector<std::uint16_t>(1000, 7));
  check_data_refused("truncated.bin", valid.substr(0, valid.size() - 2), {"1000"});
  check_data_refused("header.bin", valid.substr(0, 1000), {});
  std::string wrong_magic = valid;
  wrong_magic[0] ^= 1;
  check_data_refused("magic.bin", wrong_magic, {"20240520"});
  std::string wrong_version = valid;
  wrong_version[4] = 9;
  check_data_refused("version.bin", wrong_version, {"version", "9"});
}

TEST_CASE_FIXTURE(Fixture, "a damaged question file is refused") {
  folder.write("questions.bin", std::string(2000, '\1'));
  check_refused(2, {"--hellaswag", file("questions.bin")}, {"questions.bin", "offset 0"}, data);
}

TEST_CASE_FIXTURE(Fixture, "text samples without a tokenizer or a prompt are refused") {
  folder.write("tokens.bin", token_file(std::vector<std::uint16_t>(1000, 7)));
  check_refused(2, {"--data", file("tokens.bin"), "--sample-every", "2"}, {"--sample-every 2", "--tokenizer PATH"});
  check_refused(2, {"--vocab-size", "123", "--sample-every", "2", "--sample-prompt", "{}"},
                {"--sample-prompt '{}'", "123, but the model"});
}

TEST_CASE_FIXTURE(Fixture, "a token outside the vocabulary is refused") {
  std::vector<std::uint16_t> tokens(1000, 7);
  tokens[900] = 256;
  check_data_refused("outside.bin", token_file(tokens), {"256", "--vocab-size"});
  check_data_refused("outside.txt", small_text(), {"--vocab-size"}, {"--vocab-size", "100"});
}

TEST_CASE_FIXTURE(WeightsFixture, "missing weights are refused") {
  check_refused(2, {"--init-from", file("none.safetensors")}, {file("none.safetensors")});
}

TEST_CASE_FIXTURE(WeightsFixture, "weights with a bad header are refused") {
  std::string long_header = valid;
  std::memset(long_header.data(), 0x7f, 8);
  check_weights_refused(long_header, {"header"});
  check_weights_refused(weights_file("{\"wte.weight\": ", data_bytes()), {});
  check_weights_refused("", {});
  check_weights_refused("short", {});
}

TEST_CASE_FIXTURE(WeightsFixture, "weights with missing or extra bytes are refused") {
  check_weights_refused(valid.substr(0, valid.size() - 4), {});
  check_weights_refused(valid + std::string(4, '\0'), {});
}

TEST_CASE_FIXTURE(WeightsFixture, "weights that overlap are refused") {
  std::string damaged = header();
  // Both ends of the second tensor are moved onto the first.
  const auto first = damaged.find("\"data_offsets\":[0,");
  REQUIRE(first != std::string::npos);
  const auto end = damaged.substr(first + 18, damaged.find(']', first) - first - 18);
  replace(damaged, "\"data_offsets\":[" + end + ",",
          "\"data_offsets\":[" + std::to_string(std::stol(end) - 4) + ",");
  check_weights_refused(weights_file(damaged, data_bytes()), {});
}

TEST_CASE_FIXTURE(WeightsFixture,
                  "weights with NaN are refused by tensor, and the error does not blame the training") {
  std::string damaged = valid;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string first = "\"ln_f.bias\":{\"dtype\":\"F32\",\"shape\":[32],\"data_offsets\":[";
  const auto at = header().find(first);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = std::stoul(header().substr(at + first.size()));
  std::memcpy(damaged.data() + sizeof(std::uint64_t) + header().size() + begin + 4, &nan, sizeof nan);
  check_weights_refused(damaged, {"tensor 'ln_f.bias' has nan at element 1", "damaged"});
}

TEST_CASE_FIXTURE(WeightsFixture, "weights of another shape or type are refused") {
  const std::string path = file("valid.safetensors");
  check_refused(2, {"--init-from", path, "--hidden", "64"}, {path, "--hidden 64", "which has 32"});
  std::string other_type = header();
  replace(other_type, "\"F32\"", "\"I32\"");
  check_weights_refused(weights_file(other_type, data_bytes()), {"I32"});
}

TEST_CASE_FIXTURE(WeightsFixture, "weights without one of the tensors are refused") {
  std::string without = header();
  replace(without, "\"h.1.ln_1.weight\"", "\"h.9.ln_1.weight\"");
  check_weights_refused(weights_file(without, data_bytes()), {"h.1.ln_1.weight"});
}

TEST_CASE_FIXTURE(Fixture, "output that cannot be written is refused before training") {
  for (const std::string flag : {"--save", "--metrics", "--trace"}) {
    check_refused(2, {flag, text + "/inside.a.file"}, {flag, text + "/inside.a.file"});
  }
}

TEST_CASE_FIXTURE(Fixture, "conflicting outputs are refused before anything is written") {
  const std::string log = file("log"), before = read_file(text);
  check_refused(2, {"--metrics", log, "--trace", folder.path().string() + "/./log"},
                {"--metrics " + log, "--trace"});
  CHECK_FALSE(std::filesystem::exists(log));
  check_refused(2, {"--metrics", text}, {"--metrics " + text, "--data " + text});
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
