// Training in several runs: stopped, killed, refused and resumed, under mpirun.
#include "tests/apps/small_run.hpp"

#include <csignal>
#include <thread>

#include <sys/wait.h>

using namespace ranvier::tests;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr auto limit = 120s;

/// For runs that are extended.
const Flags constant = "--lr-decay constant --warmup-steps 0";

/// Training results by step: every line of metrics without its times.
std::vector<std::string> trained(const std::string& metrics) {
  std::vector<std::string> steps;
  for (const std::string& line : lines_of(read_file(metrics))) {
    if (!line.starts_with("{\"step\":")) continue;
    const auto validated = line.find(",\"validation_");
    steps.push_back(line.substr(0, line.find(",\"tokens\"")) +
                    (validated == std::string::npos ? "" : line.substr(validated)));
  }
  return steps;
}

/// Changes data of rank 1 in a checkpoint.
void damage(const std::string& checkpoint) {
  const std::string data = checkpoint + "/rank-0001.data";
  REQUIRE(fs::file_size(data) > 5001);
  overwrite(data, 5000, '\x55');
  overwrite(data, 5001, '\x2a');
}

struct Fixture : SmallText {
  std::string checkpoints = file("checkpoints");

  /// Fast steps, to be stopped in the middle of them.
  [[nodiscard]] Flags flags(const Flags& more = {}) const {
    return small_run(text, join(fmt::format("--steps 400 --dropout 0.1 --eval-every 150 --save {} --metrics {}",
                                            weights, metrics),
                                more));
  }
  [[nodiscard]] Flags with_checkpoints(Flags more = {}) const {
    return flags(join(more, "--checkpoint " + checkpoints + " --checkpoint-every 25"));
  }

  /// Result of an uninterrupted run with the same flags.
  struct Whole {
    std::vector<std::string> steps;
    std::string weights;
  };
  [[nodiscard]] Whole uninterrupted(int ranks, Flags more) const {
    const std::string whole = file("whole.jsonl"), saved = file("whole.safetensors");
    require_status(0, run(ranks, flags(join(more, fmt::format("--metrics {} --save {}", whole, saved))), limit));
    Whole result{trained(whole), read_file(saved)};
    fs::remove(whole);
    fs::remove(saved);
    return result;
  }
  void check_same(const Whole& whole) const {
    CHECK(trained(metrics) == whole.steps);
    CHECK(read_file(weights) == whole.weights);
  }

  void check_losses(const Whole& whole, double tolerance) const {
    const auto loss_of = [](const std::string& line) { return std::stod(line.substr(line.find("\"loss\":") + 7)); };
    const auto steps = trained(metrics);
    REQUIRE(steps.size() == whole.steps.size());
    for (std::size_t step = 0; step < steps.size(); ++step)
      CHECK(loss_of(steps[step]) == doctest::Approx(loss_of(whole.steps[step])).epsilon(tolerance));
  }
  void remove_outputs() const {
    for (const auto& path : {checkpoints, metrics, weights}) fs::remove_all(path);
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(checkpoints)) all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  struct Part {
    int steps;
    int ranks;
    Flags place;
    std::string_view words = {};  ///< in its output
  };
  /// Runs that resume one after the other.
  void train_in_parts(const Flags& more, const std::vector<Part>& parts) const {
    for (const auto& [steps, ranks, place, words] : parts) {
      CAPTURE(steps);
      const Flags resumed = join(place, fmt::format("--resume auto --steps {}", steps));
      check_output(0, run(ranks, with_checkpoints(join(more, resumed)), limit), {words});
    }
  }

  void check_refused(int status, int ranks, const Flags& flags, std::initializer_list<std::string> words) const {
    const Outcome outcome = require_status(status, run(ranks, flags, limit));
    check_lacks(outcome.output, {"step 1/"});
    check_has(outcome.output, words);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a run stopped by a signal is resumed on another grid, with the same bits") {
  const Whole whole = uninterrupted(1, {});
  {
    Job job(2, with_checkpoints("--g-inter 2"));
    REQUIRE(job.wait_for_lines(metrics, 60, limit));
    job.signal_rank(1, SIGTERM);
    check_output(75, job.wait(limit), {"takes a checkpoint in " + checkpoints, "stopped after"});
  }
  REQUIRE(trained(metrics).size() < 400);
  const auto stopped = names();

  // Another training, or a second one in the same folder, is refused and changes nothing.
  check_refused(64, 1, with_checkpoints(), {"--checkpoint " + checkpoints + " has checkpoints", "--resume auto"});
  check_refused(64, 1, with_checkpoints("--resume auto --learning-rate 2e-3 --clip 0"),
                {"--learning-rate 0.002 (was 0.001)", "--clip 0 (was 1)", "--resume-with learning-rate,clip"});
  check_refused(65, 1, flags("--resume " + text), {"--resume " + text + " is not a folder", "DIR/step-00000500"});
  CHECK(names() == stopped);

  // The newest checkpoint has damaged data.
  const std::string newest =
      checkpoints + "/" +
      *std::find_if(stopped.rbegin(), stopped.rend(), [](const auto& name) { return name.starts_with("step-"); });
  damage(newest);

  check_output(0, run(1, with_checkpoints("--resume auto --g-inter 1"), limit),
               {"skipped " + newest + ": ", "resumed from " + checkpoints + "/step-",
                "--g-inter 1 (was 2), --pipeline-limit 1 (was 2): results stay bit-identical"});
  check_same(whole);
  check_has(read_file(metrics), {"{\"checkpoint\":400,\"bytes\":"});
  // All steps are done: another run has nothing to do, and prints that.
  check_output(0, run(1, with_checkpoints("--resume auto"), limit), {"nothing to train: all 400 steps are done"});
  check_same(whole);
}

TEST_CASE_FIXTURE(Fixture,
                  "damage that only one rank finds makes all ranks refuse, and nothing is started over it") {
  const Flags two = "--g-inter 2 --steps 6 --eval-every 0";
  const Whole whole = uninterrupted(2, two);
  require_status(0, run(2, with_checkpoints(two), limit));
  // Data of the second stage, which no other rank reads.
  damage(checkpoints + "/step-00000006");
  fs::remove(metrics);

  const auto before = names();
  Flags again = join(two, "--resume auto");
  check_refused(65, 2, with_checkpoints(again),
                {"none of the 1 checkpoints in " + checkpoints + " is complete", "from scratch"});
  check_refused(64, 2, with_checkpoints(two), {"--checkpoint " + checkpoints + " has checkpoints", "step 6"});
  CHECK(names() == before);

  fs::rename(checkpoints + "/step-00000006", file("moved"));
  check_output(0, run(2, with_checkpoints(again), limit), {"starting from scratch"});
  check_same(whole);
}

TEST_CASE_FIXTURE(Fixture, "a weighted mixture continues at the same sample, on any number of ranks") {
  const std::string other = folder.write("other.txt", std::string(2000, 'x') + small_text()).string();
  const Flags mixed = join(constant, "--eval-every 0 --data " + text + ":0.7," + other + ":0.3");
  const Whole whole = uninterrupted(2, join(mixed, "--g-data 2 --steps 12"));
  train_in_parts(mixed, {{5, 2, "--g-data 2"}, {12, 2, "--g-data auto"}});
  check_same(whole);
  remove_outputs();
  train_in_parts(mixed, {{5, 2, "--g-data 2"},
                         {8, 1, "--g-data auto", "--g-data 1 (was 2)"},
                         {12, 2, "--g-data auto", "--g-data 2 (was 1)"}});
  check_losses(whole, 1e-4);  // on one rank sums are in another order
}

TEST_CASE_FIXTURE(Fixture, "a run continues with another sharding, location of states and precision") {
  const Flags two = join(constant, "--eval-every 0 --g-data 2");
  const Whole whole = uninterrupted(2, join(two, "--shard zero3 --steps 6"));
  train_in_parts(two, {{3, 2, "--shard zero3"},
                       {6, 2,
                        "--shard zero1 --offload infinity-nvme --precision bf16 --resume-with precision --nvme " +
                            make_folder("disk")}});
  check_losses(whole, 2e-3);
}

TEST_CASE_FIXTURE(Fixture, "moments in int8 resume on another grid, with the same bits") {
  const Flags int8 = join(constant, "--eval-every 0 --moment-dtype int8");
  const Whole whole = uninterrupted(1, join(int8, "--steps 6"));
  train_in_parts(int8, {{3, 2, "--g-inter 2"}, {6, 3, "--g-inter 3 --optimizer-tier host --bucket-size 3000"}});
  check_same(whole);
}

TEST_CASE_FIXTURE(Fixture, "moments become int8 in the middle of a run if the change is requested") {
  const Flags steady = join(constant, "--eval-every 0");
  const Whole whole = uninterrupted(2, join(steady, "--g-data 2 --steps 6"));
  train_in_parts(steady, {{3, 2, "--g-data 2 --shard zero3"}});
  const Flags int8 = join(steady, "--g-inter 2 --steps 6 --moment-dtype int8");
  check_refused(64, 2, with_checkpoints(join(int8, "--resume auto")), {"--moment-dtype", "--resume-with"});
  train_in_parts(steady, {{6, 2, "--g-inter 2 --moment-dtype int8 --resume-with moment-dtype"}});
  check_losses(whole, 2e-2);
}

TEST_CASE_FIXTURE(Fixture,
                  "a run resumes with its own update rule, and with another one only if that is intended") {
  const Flags two = join(constant, "--eval-every 0 --g-inter 2 --optimizer sgd --learning-rate 0.01");
  const Whole whole = uninterrupted(2, join(two, "--steps 6"));
  train_in_parts(two, {{3, 2, {}}});
  const Flags six = join(constant, "--eval-every 0 --g-inter 2 --resume auto --steps 6 --learning-rate 0.01");
  check_refused(64, 2, with_checkpoints(six), {"--optimizer adamw (was sgd)", "--resume-with optimizer"});
  check_refused(64, 2, with_checkpoints(join(six, "--optimizer sgd --momentum 0")),
                {"--momentum 0 (was 0.9)", "--resume-with momentum"});
  train_in_parts(two, {{6, 2, "--offload zero-offload"}});
  check_same(whole);
  train_in_parts(two, {{8, 2, "--optimizer adamw --resume-with optimizer", "moments start at zero"},
                       {10, 2, "--optimizer adamw"},
                       {12, 2, "--momentum 0 --resume-with optimizer", "--optimizer sgd (was adamw)"}});
}

TEST_CASE_FIXTURE(Fixture, "a partly trained model resumes on another grid, and trains only the same part") {
  const Flags part = join(constant, R"(--eval-every 0 --train ^h\.[23]\.|^ln_f)");
  const Whole whole = uninterrupted(2, join(part, "--g-inter 2 --steps 6"));
  train_in_parts(part, {{3, 2, "--g-inter 2", "are trained"}});
  check_refused(64, 1, with_checkpoints(R"(--train ^h\.3 --resume auto --steps 6)"), {R"(--train ^h\.3)"});
  train_in_parts(part, {{6, 1, "--g-inter 1"}});
  check_same(whole);
}

TEST_CASE_FIXTURE(Fixture,
                  "the number of model chunks changes from one checkpoint to the next, with the same bits") {
  const Flags validated = join(constant, "--eval-every 3");
  const Whole whole = uninterrupted(1, join(validated, "--steps 9"));
  train_in_parts(validated,
                 {{3, 2, "--g-inter 2 --chunks-per-rank 2"},
                  {6, 3, "--g-inter 3 --recompute 1", "--chunks-per-rank 1 (was 2)"},
                  {9, 2, "--g-inter 2 --chunks-per-rank 3 --optimizer-tier host", "--chunks-per-rank 3 (was 1)"}});
  check_same(whole);
}

TEST_CASE_FIXTURE(Fixture, "a run ends before its time limit, and meanwhile no other job writes to its folder") {
  Job job(2, with_checkpoints("--steps 10000000 --g-inter 2 --time-limit 20s --stop-before 12s"));
  REQUIRE(job.wait_for_lines(metrics, 30, limit));
  check_refused(74, 1, with_checkpoints("--metrics " + file("other.jsonl") + " --resume auto --timeout 1"),
                {"waiting for its end, at most 2 s", "another job writes checkpoints there",
                 "use --checkpoint with another folder"});
  check_output(75, job.wait(limit), {"--time-limit 20s ends in 12s: the run ends after step "});
}

TEST_CASE_FIXTURE(Fixture, "a checkpoint without disk space is a warning, and the training continues") {
  Job job(1, with_checkpoints("--steps 10000000 --timeout 5"));
  job.wait_until_said("  checkpoint: ");
  job.limit_files(0, 512 << 10);
  job.wait_until_said("warning: checkpoint failed");
  job.signal_rank(0, SIGTERM);
  const Outcome outcome = require_status(74, job.wait(limit));  // the last one is missing
  check_has(outcome.output,
            {"warning: checkpoint failed: ", "File too large", "error: outputs are missing: checkpoint of step ",
             "within 5 s (--timeout)"});  // only for the last one
  // The earlier checkpoints exist, and nothing of the others.
  const auto left = names();
  CHECK(left.front() == "lock");
  CHECK(left.back() == "training");
  CHECK(left.size() > 2);
  for (const std::string& name : left) CHECK(name.find(".part") == std::string::npos);
  check_has(read_file(metrics), {"\"failure\":\""});
  folder.write("plain", "no folder");
  check_refused(74, 1, small_run(text, fmt::format("--checkpoint {}", file("plain") + "/checkpoints")),
                {"use --checkpoint with a writable folder"});
}

TEST_CASE_FIXTURE(Fixture, "killed at any moment, a run that is started again ends with the same bits") {
  struct Case {
    int ranks;
    Flags flags;
    int steps;  // enough for two kills: a run of small steps progresses far before it is noticed
  };
  const std::string disk = make_folder("disk");
  const Case cases[] = {
      {1, {}, 400},
      {2, "--shard zero3 --optimizer-tier host --clip 0", 400},
      {4, "--g-inter 2 --shard zero1 --offload infinity-nvme --nvme " + disk, 240},
  };
  const char* const asked = std::getenv("RANVIER_KILLS");  // for each of them
  const int kills = asked != nullptr ? std::atoi(asked) : 2;
  const auto seed = ranvier::test::random_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Case& one : cases) {
    CAPTURE(one.ranks);
    const Flags flags =
        join(one.flags, fmt::format("--steps {}", std::to_string(std::max(one.steps, one.steps / 2 * kills))));
    const Whole whole = uninterrupted(one.ranks, flags);
    remove_outputs();
    Job job({RANVIER_RESTART_LOOP, "--failures", "1000", "--pause", "0", "--"}, one.ranks, with_checkpoints(flags));
    int killed = 0;
    for (int kill = 0; kill < kills; ++kill) {
      // From the first steps of a run on; a run that ends before that is not killed.
      const auto lines = static_cast<int>(lines_of(read_file(metrics)).size());
      if (!job.wait_for_lines(metrics, lines + 1 + static_cast<int>(random() % 120) * one.steps / 400, 20s)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
      const bool all = random() % 2 == 0;
      const int first = static_cast<int>(random() % static_cast<unsigned>(one.ranks));
      bool hit = false;
      for (int rank = 0; rank < one.ranks; ++rank)
        if (all || rank == first) hit |= job.signal_rank_if_there(rank, SIGKILL);
      killed += hit ? 1 : 0;
    }
    if (asked != nullptr) {
      MESSAGE(killed << " kills of a job of " << one.ranks);
      CHECK(killed == kills);
    }
    check_output(0, job.wait(limit), {"attempt 1 of at most 1000"});
    check_same(whole);
  }
}

TEST_CASE_FIXTURE(
    SmallText,
    "the restart loop restarts runs that make progress, gives up on others, and passes other statuses on") {
  // A program that ends with the statuses of a list, one after the other, and records its starts. It requires --resume
  // auto, and leaves a new checkpoint with "75 saved".
  const std::string program = folder
                                  .write("program",
                                         "#!/bin/bash\n"
                                         "[[ \"$*\" == *'--resume auto' ]] || exit 99\n"
                                         "echo run >>$0.runs; read -r status saved <<<\"$(head -1 $0.statuses)\"\n"
                                         "[[ -z $saved ]] || mkdir -p $0.steps/step-$(wc -l <$0.runs)\n"
                                         "sed -i 1d $0.statuses; exit $status\n")
                                  .string();
  fs::permissions(program, fs::perms::owner_all);
  const auto loop = [&](const std::string& statuses) {
    folder.write("program.statuses", statuses);
    fs::remove(program + ".runs");
    fs::remove_all(program + ".steps");
    const std::string command = std::string(RANVIER_RESTART_LOOP) + " --failures 2 --pause 0 -- " + program +
                                " --checkpoint " + program + ".steps 2>/dev/null";
    return std::pair{WEXITSTATUS(std::system(command.c_str())), lines_of(read_file(program + ".runs")).size()};
  };
  CHECK(loop("0\n") == std::pair{0, std::size_t{1}});
  CHECK(loop("75 saved\n75 saved\n76\n137\n75 saved\n72\n0\n") == std::pair{0, std::size_t{7}});
  CHECK(loop("76\n76\n76\n0\n") == std::pair{76, std::size_t{3}});
  CHECK(loop("75\n75\n75\n0\n") == std::pair{75, std::size_t{3}});  // stops without a checkpoint
  CHECK(loop("76 saved\n76\n76\n0\n") == std::pair{76, std::size_t{3}});
  for (const int status : {64, 65, 70, 71, 73, 74})
    CHECK(loop(std::to_string(status) + "\n0\n") == std::pair{status, std::size_t{1}});
  CHECK(WEXITSTATUS(std::system(RANVIER_RESTART_LOOP " --failures 2>/dev/null")) == 64);
}
