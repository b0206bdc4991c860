// Runs whose final summary has the prediction of a profile.
#include "apps/program/profile_search_path.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Fixture : SmallText {
  std::string profile = folder.write("here.json", to_json(job_profile())).string();

  /// A run's last metrics, with the predicted and the measured side.
  [[nodiscard]] boost::json::value prediction() const {
    return boost::json::parse(lines_of(read_file(metrics)).back()).at("prediction");
  }
  /// Checks values that are planned, and do not depend on the machine.
  void check_exact(std::initializer_list<const char*> names) const {
    for (const std::string name : names)
      CHECK_MESSAGE(prediction().at("predicted").at(name) == prediction().at("measured").at(name), name);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a run with a profile ends with its prediction next to the measurements") {
  const Outcome outcome = ends_well(4,
                                    "--g-inter 2 --g-data 2 --node-size 2 --profile " + profile + " --metrics " +
                                        metrics + " --validation-split 0.2 --eval-every 2",
                                    60s);
  check_has(outcome.output, {"prediction from profile 'test-cpu' compared with", "\nstage 1 computes "});
  check_exact({"bytes_intra", "bytes_inter", "device_bytes"});
  CHECK(prediction().at("profile") == "test-cpu");
}

TEST_CASE_FIXTURE(Fixture, "bytes read from and written to files of states are predicted exactly") {
  ends_well(2,
            "--g-data 2 --shard zero3 --offload infinity-nvme --nvme " + folder.path().string() + " --profile " +
                profile + " --metrics " + metrics,
            60s);
  check_exact({"file_bytes_read", "file_bytes_written"});
  for (const char* what : {"file_bytes_read", "file_bytes_written"})
    CHECK(prediction().at("measured").at(what).as_double() > 0);
}

TEST_CASE_FIXTURE(Fixture, "a rank that is slowed down is predicted as slow") {
  const Outcome outcome = ends_well(2, "--g-inter 2 --profile " + profile + " --metrics " + metrics, 60s,
                                    {{"RANVIER_FAULT", "1:1:slow:20"}});
  check_has(outcome.output, {"rank 1 slowed down 20 times (RANVIER_FAULT)\n"});
  const auto busy = prediction().at("predicted").at("busy").as_array();
  CHECK(busy.at(1).as_double() > 2 * busy.at(0).as_double());
}

TEST_CASE_FIXTURE(Fixture, "the profile of this host is found, unless a flag or the environment overrides it") {
  const Flags flags = small_run(text, {"--g-data", "2", "--threads", "1"});
  const auto predicted = [&](const Environment& environment, Flags more = {}) {
    const Outcome outcome = run(2, join(flags, more), 60s, environment);
    CHECK(outcome.status == 0);
    return outcome.output;
  };
  const ranvier::apps::ProfileSearchPath places{.named = "",
                                                .folder = folder.path() / "ranvier" / "profiles",
                                                .host = ranvier::apps::profile_search_path().host};
  const auto left = profile_file(places, {.gpu = false, .threads = 1});
  folder.write(std::filesystem::relative(left, folder.path()).string(), to_json(job_profile()));
  const std::string data = folder.path().string();
  const std::string found = predicted({{"RANVIER_PROFILE", ""}, {"XDG_DATA_HOME", data}});
  check_has(found, {"prediction from profile 'test-cpu' compared with",
                    "\nprofile: " + left.string() + " (--profile none"});
  const std::string without = predicted({{"RANVIER_PROFILE", ""}, {"XDG_DATA_HOME", data}}, {"--profile", "none"});
  check_lacks(without, {"predict", "\nprofile: "});
  const std::string named = predicted({{"RANVIER_PROFILE", profile}, {"XDG_DATA_HOME", data}});
  check_has(named, {"\nprofile: RANVIER_PROFILE=" + profile});
  // A run does not end because of a profile that it did not request.
  const std::string lost = predicted({{"RANVIER_PROFILE", "nowhere.json"}, {"XDG_DATA_HOME", data}});
  check_has(lost, {"no prediction from RANVIER_PROFILE=nowhere.json: --profile nowhere.json: neither a file"});
  const std::string gpu = folder.write("gpu.json", to_json(plan_profile(true))).string();
  check_has(predicted({{"RANVIER_PROFILE", gpu}}), {"describes GPUs, but this run computes on a CPU"});
}

TEST_CASE_FIXTURE(Fixture, "a prediction that fails is reported in a line, and does not affect the run") {
  check_output(0, run(1, small_run(text, "--steps 1 --profile " + profile), 60s),
               {"no prediction from profile 'test-cpu': the first step is not compared"});
  auto without_links = job_profile();
  without_links.links = {};
  const std::string alone = folder.write("alone.json", to_json(without_links)).string();
  check_output(0, run(2, small_run(text, "--g-data 2 --profile " + alone), 60s),
               {"no prediction from profile 'test-cpu': "});
  check_output(64, run(2, small_run(text, "--g-data 2 --profile nowhere.json"), 60s),
               {"--profile nowhere.json: neither a file"});
}
