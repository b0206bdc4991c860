// ranvier-bench, started like a user starts it.
#include "collectives/plans/link_file.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "tests/apps/job.hpp"
#include "tests/test.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;
using ranvier::collectives::Link;
using ranvier::collectives::Links;
using ranvier::collectives::read_links;

namespace {

constexpr auto limit = 60s;

struct Fixture {
  TemporaryFolder folder;
  std::string path = (folder.path() / "links.json").string();

  /// Output of a run that ends well.
  [[nodiscard]] std::string bench(int ranks, const Flags& flags) const {
    return require_status(0, run(ranks, flags, limit)).output;
  }
};

bool plausible(const Link& link) {
  return link.latency_seconds > 1e-8 && link.latency_seconds < 1 && link.bytes_per_second > 1e5 &&
         link.bytes_per_second < 1e12 && link.node_bytes_per_second > 1e5 && link.node_bytes_per_second < 1e12;
}

std::vector<std::string> cases_of(const std::string& output) {
  auto lines = lines_of(output);
  std::erase_if(lines, [](const std::string& line) { return !line.starts_with("{\"collective\""); });
  return lines;
}

}  // namespace

TEST_CASE_FIXTURE(
    Fixture, "on one node the links inside it are measured and written, and the others are reported as missing") {
  check_has(bench(2, "--seconds 1 --write-links " + path), {"inter_node not measured: all ranks are on one node"});
  const Links links = read_links(path);
  CHECK(plausible(links.intra_node));
  CHECK(!links.inter_node.measured());
}

TEST_CASE_FIXTURE(Fixture, "ranks that count as separate nodes have only links between nodes") {
  check_has(bench(2, "--node-size 1 --seconds 1 --write-links " + path),
            {"intra_node not measured: each of 2 nodes has one rank"});
  const Links links = read_links(path);
  CHECK(!links.intra_node.measured());
  CHECK(plausible(links.inter_node));
}

TEST_CASE_FIXTURE(Fixture, "both link classes are measured on uneven nodes, and predict the time of collectives") {
  const auto cases = cases_of(bench(3,
                                    "--node-size 2 --collectives all-gather,reduce-scatter,all-reduce --algorithms "
                                    "ring,ho-ring,torus,mpi --sizes 40KiB,300KiB --repeat 3 --write-links " +
                                        path));
  CHECK(plausible(read_links(path).intra_node));
  CHECK(plausible(read_links(path).inter_node));
  CHECK(cases.size() == 2 * (3 + 3 + 4));
  for (const std::string& line : cases) {
    check_has(line, {R"("ranks":3,"nodes":2,"seconds":0.)"});
    CHECK(has(line, R"("predicted_seconds":null)") == has(line, R"("algorithm":"mpi")"));
  }
  const auto given =
      cases_of(bench(4, "--node-size 2 --collectives all-gather --algorithms ring --sizes 1KiB --links " + path));
  REQUIRE(given.size() == 1);
  check_has(given[0], {R"("bytes":1024,"ranks":4,"nodes":2)"});
}

TEST_CASE_FIXTURE(Fixture, "collectives are timed without links, on one rank too") {
  for (const int ranks : {1, 2})
    CHECK(cases_of(bench(ranks, "--collectives all-reduce --sizes 1MiB --algorithms ring,mpi --repeat 2")).size() ==
          2);
}

TEST_CASE_FIXTURE(Fixture, "operations that exceed the time limit are skipped by name") {
  const std::string output = bench(2, "--collectives reduce-scatter,all-gather --sizes 64MiB --seconds 0.1");
  check_has(output, {"all-gather of 64MiB was skipped: --seconds 0.1"});
  // On a busy machine the time may be over before the first operation.
  const bool first_left_out = has(output, "reduce-scatter of 64MiB was skipped: --seconds 0.1");
  CHECK(cases_of(output).size() == (first_left_out ? 0 : 6));
}

TEST_CASE_FIXTURE(Fixture, "a profile of this machine is written, and predictions read it") {
  static_cast<void>(bench(2, "profile --seconds 0.5 --threads 1 --node-size 1 --name here --nvme " +
                                 folder.path().string() + " --write-profile " + path));
  const auto profile = ranvier::runtime::read_machine_profile(path);
  CHECK(profile.name == "here");
  check_has(profile.source, {"with 2 ranks"});
  CHECK_FALSE(profile.gpu);
  CHECK(profile.threads == 1);
  CHECK(profile.device_memory == profile.host_memory / 2);
  CHECK(profile.disk > 0);
  CHECK(profile.read_bytes_per_second > 1e5);
  CHECK(profile.write_bytes_per_second > 1e5);
  CHECK(profile.file_latency_seconds > 1e-8);
  CHECK(profile.handler_seconds > 1e-9);
  CHECK(profile.handler_seconds < 1e-2);
  CHECK(!profile.links.intra_node.measured());
  CHECK(plausible(profile.links.inter_node));
  using ranvier::runtime::DType;
  using ranvier::runtime::WorkKind;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CHECK(profile.peak_flops_per_second.at(dtype) > 1e8);
    CHECK(profile.products.at(dtype).size() > 20);
    for (std::size_t kind = 0; kind < ranvier::runtime::work_kinds; ++kind) {
      CAPTURE(to_string(static_cast<WorkKind>(kind)));
      const auto& rate = profile.rates.at(dtype)[kind];
      const bool measured = rate.flops_per_second > 1e6 || rate.bytes_per_second > 1e6;
      const bool of_gpus = kind == static_cast<std::size_t>(WorkKind::host_copy);
      CHECK(measured == (!of_gpus && kind != static_cast<std::size_t>(WorkKind::samples)));
    }
  }
  for (const WorkKind kind : {WorkKind::optimizer, WorkKind::optimizer_int8}) {
    CAPTURE(to_string(kind));
    const auto optimizer = static_cast<std::size_t>(kind);
    const auto& on_device = profile.rates.at(DType::f32)[optimizer];
    CHECK(on_device.bytes_per_second > 1e6);
    CHECK(on_device.flops_per_second > 1e6);
    CHECK(profile.rates.at(DType::bf16)[optimizer].flops_per_second == on_device.flops_per_second);
    CHECK(profile.host_rates[optimizer].bytes_per_second > 1e6);
    CHECK(profile.host_rates[optimizer].flops_per_second > 1e6);
  }
  CHECK(profile.host_rates[static_cast<std::size_t>(WorkKind::elementwise)].bytes_per_second > 1e6);
}

TEST_CASE_FIXTURE(Fixture, "without a path a profile is written where other programs look for it") {
  const Environment environment{{"XDG_DATA_HOME", folder.path().string()}, {"RANVIER_PROFILE", ""}};
  const Outcome outcome =
      require_status(0, run(2, {"profile", "--seconds", "0.1", "--threads", "1"}, limit, environment));
  const auto at = outcome.output.find("profile: " + folder.path().string() + "/ranvier/profiles/");
  REQUIRE(at != std::string::npos);
  const auto begin = at + std::string("profile: ").size();
  const std::string left = outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
  CHECK(left.ends_with("-cpu-1-thread.json"));
  CHECK(ranvier::runtime::read_machine_profile(left).threads == 1);
  check_has(outcome.output, {"without --profile"});
  check_has(bench(1, "profile --seconds 0.1 --write-profile -"), {"\"peak_flops_per_second\""});
  const std::string blocked = folder.write("file", "").string();
  check_output(74, run(1, "profile --threads 1", limit, {{"XDG_DATA_HOME", blocked}}),
               {"cannot create profile folder", "use --write-profile FILE"});
}

TEST_CASE_FIXTURE(Fixture, "impossible measurements are refused once, before anything is measured") {
  const auto check_refused = [&](int ranks, const Flags& flags, const std::string& words, int status = 64) {
    const Outcome outcome = require_status(status, run(ranks, flags, limit));
    check_has(outcome.output, {"ranvier-bench: error: ", words});
    CHECK(outcome.output.find("error: ") == outcome.output.rfind("error: "));
  };
  check_refused(1, {}, "a single rank has no links to measure; use mpirun -n 2");
  check_refused(2, {"--write-links", "/nowhere/links.json"}, "--write-links /nowhere/links.json", 74);
  check_refused(2, {"profile", "--write-profile", "/nowhere/here.json"}, "--write-profile /nowhere/here.json", 74);
  const std::string there = folder.write("there.json", "another measurement's").string();
  check_refused(2, {"--write-links", there}, "--write-links exists: " + there + "; add --overwrite");
  check_refused(1, {"profile", "--write-profile", there}, "--write-profile exists: " + there + "; add --overwrite");
  folder.write("links.json",
               R"({"inter_node": {"latency_seconds": 0, "bytes_per_second": 1, "node_bytes_per_second": 1}})");
  check_refused(2, {"--collectives", "all-gather", "--links", path},
                "--links " + path + ": no entry for links of class 'intra_node'");
  check_output(64, Job(std::vector<Flags>{"--seconds 1", "--seconds 2"}).wait(limit),
               {"options differ between ranks"});
}
