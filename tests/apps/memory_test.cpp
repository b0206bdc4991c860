// Resident memory of complete runs compared with the plan, from a run's final table.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr double MiB = 1024 * 1024;

/// A rank's memory in addition to its plan: MPI, oneDNN and the C++ library (18 MiB of mapped code), MPI's and
/// Ranvier's own heap (4 to 6 MiB). Per thread, oneDNN's generated code and the copied blocks of a product (1 to 3
/// MiB).
constexpr double beside_plan_bytes = 40 * MiB;

struct Rank {
  double planned_bytes = 0;
  double resident_bytes = 0;  ///< maximum since the process started
};

/// The last two columns of the lines after the heading "rank … planned resident".
std::vector<Rank> ranks_of(const std::string& output) {
  const auto bytes = [](double value, const std::string& unit) {
    return value * (unit == "GiB" ? 1024 * MiB : unit == "MiB" ? MiB : unit == "KiB" ? 1024 : 1);
  };
  std::vector<Rank> ranks;
  bool in_table = false;
  for (const std::string& line : lines_of(output)) {
    if (line.find("planned") != std::string::npos && line.find("resident") != std::string::npos) {
      in_table = true;
      continue;
    }
    if (!in_table) continue;
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    if (all.size() < 14 || all.front() == "stages") break;
    const auto end = all.end();
    ranks.push_back({bytes(std::stod(end[-4]), end[-3]), bytes(std::stod(end[-2]), end[-1])});
  }
  return ranks;
}

struct Fixture : SmallText {
  [[nodiscard]] std::vector<Rank> train(int ranks, const Flags& more) const {
    const Outcome outcome = ends_well(ranks, more, 120s);
    std::vector<Rank> result = ranks_of(outcome.output);
    REQUIRE(result.size() == static_cast<std::size_t>(ranks));
    return result;
  }

  void check_near_plan(int ranks, const Flags& more) const {
    for (const Rank& rank : train(ranks, more)) {
      MESSAGE((rank.planned_bytes / MiB) << " MiB planned, " << (rank.resident_bytes / MiB) << " MiB resident");
      CHECK(rank.resident_bytes <= 1.1 * rank.planned_bytes + beside_plan_bytes);
      CHECK(rank.resident_bytes >= rank.planned_bytes / 2);  // otherwise the numbers are wrong
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "one rank uses little more memory than its plan") {
  check_near_plan(
      1, "--hidden 384 --heads 6 --sequence-length 256 --batch-size 8 --microbatch-size 4 --threads 2 --steps 3");
}

TEST_CASE_FIXTURE(Fixture, "four ranks in bf16 each use little more memory than their plans") {
  check_near_plan(4, fmt::format("--hidden 384 --heads 6 --sequence-length 128 --batch-size 8 --g-inter 2 --g-data "
                                 "2 --precision bf16 --steps 3 --save {}",
                                 weights));
}

TEST_CASE_FIXTURE(Fixture, "four ranks with sharded states each use little more memory than their plans") {
  for (const char* shard : {"zero3", "mics"}) {
    check_near_plan(4, fmt::format("--hidden 384 --heads 6 --sequence-length 64 --batch-size 8 --g-data 4 "
                                   "--node-size 2 --shard {} --precision bf16 --steps 3 --save {}",
                                   shard, weights));
  }
}

TEST_CASE_FIXTURE(Fixture, "ten times the steps need no additional memory") {
  const Flags flags = fmt::format(
      "--hidden 64 --g-inter 2 --dropout 0.1 --validation-split 0.1 --eval-every 10 --metrics {}", metrics);
  const auto train_for = [&](const char* steps) { return train(2, join(flags, fmt::format("--steps {}", steps))); };
  const auto few = train_for("20"), many = train_for("200");
  for (std::size_t r = 0; r < few.size(); ++r) {
    MESSAGE((few[r].resident_bytes / MiB)
            << " MiB after 20 steps, " << (many[r].resident_bytes / MiB) << " MiB after 200");
    CHECK(many[r].resident_bytes <= few[r].resident_bytes + MiB);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "ranks whose states are in host memory or in files use little more memory than their plans") {
  const std::string disk = make_folder("disk");
  const Flags sizes =
      "--hidden 384 --heads 6 --sequence-length 256 --batch-size 8 --steps 2 --bucket-size 100000 --recompute 1 "
      "--policy gpipe";
  for (const std::string kind : {"host", "nvme"}) {
    const Flags where = kind == "nvme" ? Flags("--nvme " + disk + " --nvme-checksums on") : Flags{};
    const Flags all =
        join(fmt::format("--optimizer-tier {} --parameter-tier {} --activation-tier {}", kind, kind, kind), where);
    check_near_plan(1, join(join(sizes, "--optimizer-tier " + kind), where));
    check_near_plan(1, join(join(sizes, fmt::format("--activation-tier {} --save {}", kind, file("w"))), where));
    check_near_plan(1, join(sizes, all));
    check_near_plan(4, join(join(sizes, "--g-inter 2 --g-data 2 --shard zero3 --precision bf16"), all));
  }
}

TEST_CASE_FIXTURE(Fixture, "a thousand steps through host memory and files need no more memory than fifty") {
  const std::string disk = make_folder("disk");
  for (const std::string kind : {"host", "nvme"}) {
    const auto train_for = [&](const char* steps) {
      Flags flags = fmt::format(
          "--steps {} --g-inter 2 --layers 2 --bucket-size 4000 --recompute 1 --optimizer-tier {} --parameter-tier "
          "{} --gradient-tier {} --activation-tier {}",
          steps, kind, kind, kind, kind);
      if (kind == "nvme") flags = join(flags, "--nvme " + disk + " --nvme-checksums on");
      return train(2, flags);
    };
    const auto few = train_for("50"), many = train_for("1000");
    for (std::size_t r = 0; r < few.size(); ++r) {
      MESSAGE(kind << ": " << (few[r].resident_bytes / MiB) << " MiB after 50 steps, "
                   << (many[r].resident_bytes / MiB) << " MiB after 1000");
      // The trace's ring fills up to its 2 MiB; heaps and stacks reach their maximum in the first hundreds of steps. A
      // leak of 4 KiB per step would exceed this limit.
      CHECK(many[r].resident_bytes <= few[r].resident_bytes + 3 * MiB);
    }
  }
}
