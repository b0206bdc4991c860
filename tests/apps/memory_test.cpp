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

  /// All runs have models of 384 channels.
  void check_near_plan(int ranks, const Flags& more) const {
    for (const Rank& rank : train(ranks, join("--hidden 384 --heads 6 --batch-size 8", more))) {
      MESSAGE((rank.planned_bytes / MiB) << " MiB planned, " << (rank.resident_bytes / MiB) << " MiB resident");
      CHECK(rank.resident_bytes <= 1.1 * rank.planned_bytes + beside_plan_bytes);
      CHECK(rank.resident_bytes >= rank.planned_bytes / 2);  // otherwise the numbers are wrong
    }
  }

  /// `slack`: bytes by which two ranks may grow from `few` steps to `many`.
  void check_stays(int few, int many, double slack, const Flags& more) const {
    const auto train_for = [&](int steps) {
      return train(2, join(more, fmt::format("--g-inter 2 --steps {}", steps)));
    };
    const auto first = train_for(few), last = train_for(many);
    for (std::size_t r = 0; r < first.size(); ++r) {
      MESSAGE((first[r].resident_bytes / MiB)
              << " MiB after " << few << " steps, " << (last[r].resident_bytes / MiB) << " MiB after " << many);
      CHECK(last[r].resident_bytes <= first[r].resident_bytes + slack);
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "ranks use little more memory than their plans, with states replicated and sharded") {
  check_near_plan(1, "--sequence-length 256 --microbatch-size 4 --threads 2 --steps 3");
  const Flags half = "--precision bf16 --steps 3 --save " + weights;
  check_near_plan(4, join(half, "--sequence-length 128 --g-inter 2 --g-data 2"));
  for (const char* shard : {"--shard zero3", "--shard mics"})
    check_near_plan(4, join(half, join(shard, "--sequence-length 64 --g-data 4 --node-size 2")));
}

TEST_CASE_FIXTURE(Fixture,
                  "ranks whose states are in host memory or in files use little more memory than their plans") {
  const std::string disk = make_folder("disk");
  const Flags sizes = "--sequence-length 256 --steps 2 --bucket-size 100000 --recompute 1 --policy gpipe";
  for (const std::string kind : {"host", "nvme"}) {
    const Flags where = kind == "nvme" ? join(sizes, "--nvme " + disk + " --nvme-checksums on") : sizes;
    const Flags all =
        join(where, fmt::format("--optimizer-tier {0} --parameter-tier {0} --activation-tier {0}", kind));
    check_near_plan(1, join(where, "--optimizer-tier " + kind));
    check_near_plan(1, join(where, fmt::format("--activation-tier {} --save {}", kind, file("w"))));
    check_near_plan(1, all);
    check_near_plan(4, join(all, "--g-inter 2 --g-data 2 --shard zero3 --precision bf16"));
  }
}

TEST_CASE_FIXTURE(Fixture, "ten times the steps need no additional memory") {
  check_stays(20, 200, MiB,
              "--hidden 64 --dropout 0.1 --validation-split 0.1 --eval-every 10 --metrics " + metrics);
}

TEST_CASE_FIXTURE(Fixture, "a thousand steps through host memory and files need no more memory than fifty") {
  const std::string files = " --nvme-checksums on --nvme " + make_folder("disk");
  for (const std::string kind : {"host", "nvme"}) {
    CAPTURE(kind);
    // The trace's ring fills up to its 2 MiB; heaps and stacks reach their maximum in the first hundreds of steps. A
    // leak of 4 KiB per step would exceed this limit.
    check_stays(50, 1000, 3 * MiB,
                fmt::format("--layers 2 --bucket-size 4000 --recompute 1 --optimizer-tier {0} --parameter-tier {0} "
                            "--gradient-tier {0} --activation-tier {0}",
                            kind) +
                    (kind == "nvme" ? files : ""));
  }
}
