// From training to text: a model is trained and saved, and ranvier-generate writes what it draws.
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <filesystem>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Generated {
  int status = 0;
  std::string text;    ///< stdout
  std::string report;  ///< stderr
};

struct Fixture : SmallText {
  Fixture() {
    const Outcome outcome =
        run(1, small_run(text, {"--save", model, "--steps", "30", "--learning-rate", "1e-2"}), 120s);
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
  }

  [[nodiscard]] Generated generate(const std::string& flags) const {
    const std::string report = file("report.txt");
    const std::string command = std::string(RANVIER_GENERATOR) + " " + flags + " 2>" + report;
    FILE* const pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Generated result;
    std::array<char, 4096> part{};
    while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe))
      result.text.append(part.data(), count);
    result.status = pclose(pipe);
    result.report = read_file(report);
    return result;
  }

  std::string model = file("model");
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a trained model writes the same text on any number of threads, others with other seeds") {
  const std::string flags = "--weights " + model + " --prompt 'node axon ' --tokens 40";
  const Generated one = generate(flags + " --threads 1");
  INFO(one.report);
  REQUIRE(one.status == 0);
  CHECK(one.text.size() == 10 + 40 + 1);
  CHECK(one.text.starts_with("node axon "));
  CHECK(has(one.report, "tokens/s"));
  CHECK(has(one.report, "the context of 16 was full"));
  CHECK(generate(flags + " --threads 3").text == one.text);
  CHECK(generate(flags + " --seed 9").text != one.text);
  const Generated half = generate(flags + " --precision bf16 --threads 1");
  CHECK(half.status == 0);
  CHECK(generate(flags + " --precision bf16 --threads 2").text == half.text);
}

TEST_CASE_FIXTURE(Fixture, "what ranvier-generate cannot do it says in one line") {
  const auto error = [&](const std::string& flags) {
    const Generated result = generate(flags);
    CHECK(result.status != 0);
    return result.report;
  };
  CHECK(has(error("--prompt x"), "--weights is missing"));
  CHECK(has(error("--weights " + file("nothing.safetensors")), "nothing.safetensors"));
  CHECK(has(error("--weights " + folder.path().string()), "has no model.safetensors"));
  CHECK(has(error("--weights " + model + " --heads 4"), "leave the flag out"));
  CHECK(has(error("--weights " + model + " --top-p 0"), "--top-p 0"));
  std::filesystem::copy(model + "/model.safetensors", file("alone.safetensors"));
  CHECK(has(error("--weights " + file("alone.safetensors")), "give --heads"));
  CHECK(has(error("--weights " + file("alone.safetensors") + " --heads 5"), "does not divide"));
  CHECK(generate("--weights " + file("alone.safetensors") + " --heads 2 --tokens 3").status == 0);
}

TEST_CASE_FIXTURE(Fixture, "training goes on from a saved folder with the sizes that its config.json says") {
  const auto again = [&](const Flags& more) {
    Flags flags{"--data", text, "--init-from", model, "--steps", "1", "--threads", "1", "--timeout", "20"};
    flags.insert(flags.end(), more.begin(), more.end());
    return run(1, flags, 60s);
  };
  const Outcome outcome = again({});
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  CHECK(has(outcome.output, "gpt 4 × 32, 2 heads"));
  const Outcome other = again({"--heads", "4"});
  CHECK(other.status != 0);
  CHECK(has(other.output, "--heads 4"));
  CHECK(has(other.output, "config.json"));
}
