#include "apps/plan/ranking.hpp"

#include "apps/plan/search.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/test.hpp"

#include <atomic>

using namespace ranvier;
using apps::Bound;
using apps::Ranking;
using apps::search;
using apps::SearchLimits;
using apps::SearchResult;
using apps::SearchSteps;

namespace {

/// Candidates whose bounds are fractions of their times, some of which cannot run.
struct Puzzle {
  std::vector<double> seconds, first, second, estimate;
  std::vector<int> out;  ///< 1: refused when it is planned; 2: when it is simulated
  std::atomic<int> simulations = 0;

  explicit Puzzle(std::uint32_t seed, std::size_t count) {
    std::mt19937 draw(seed);
    std::uniform_real_distribution<double> share(0, 1);
    for (std::size_t i = 0; i < count; ++i) {
      // Several are equal.
      seconds.push_back(1 + std::floor(50 * share(draw)));
      second.push_back(seconds[i] * (0.3 + 0.7 * share(draw)));
      first.push_back(second[i] * share(draw));
      estimate.push_back(second[i] * (1 + share(draw)));
      const double fate = share(draw);
      out.push_back(fate < 0.2 ? 1 : fate < 0.25 ? 2 : 0);
    }
  }

  SearchResult run(const SearchLimits& limits) {
    const SearchSteps steps{.bound = [this](std::size_t i) { return Bound{first[i], first[i]}; },
                            .plan = [this](std::size_t i) -> std::optional<Bound> {
                              if (out[i] == 1) return {};
                              return Bound{second[i], estimate[i]};
                            },
                            .simulate = [this](std::size_t i) -> std::optional<double> {
                              ++simulations;
                              if (out[i] == 2) return {};
                              return seconds[i];
                            }};
    return search(seconds.size(), steps, limits);
  }
};

void same(const std::vector<SearchResult::Found>& a, const std::vector<SearchResult::Found>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].candidate == b[i].candidate);
    CHECK(a[i].seconds == b[i].seconds);
  }
}

std::vector<apps::GivenFlag> with(std::vector<apps::GivenFlag> flags, std::vector<apps::GivenFlag> more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

TEST_CASE("branch and bound finds the result of an exhaustive search, in the same order, with fewer simulations") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const std::size_t count = 10 + 37 * (seed % 12);
    Puzzle cutting(seed, count), exhaustive(seed, count);
    const SearchResult all = exhaustive.run({.best = 10, .exhaustive = true});
    const SearchResult cut = cutting.run({.best = 10, .threads = 1 + static_cast<int>(seed % 3)});
    same(cut.best, all.best);
    CHECK(cut.open == 0);
    CHECK(all.largest_bound_share <= 1);
    if (count > 200) CHECK(cutting.simulations.load() < exhaustive.simulations.load());
  }
}

TEST_CASE("a search that stops early prints how many it skips and how fast one of them may be") {
  Puzzle puzzle(7, 400);
  const SearchResult few = puzzle.run({.best = 10, .simulations = 8});
  CHECK(few.simulated == 8);
  CHECK(puzzle.simulations.load() == 8);
  CHECK(few.open > 0);
  Puzzle again(7, 400);
  const SearchResult all = again.run({.best = 10, .exhaustive = true});
  CHECK(all.best.front().seconds >= std::min(few.min_open, few.best.front().seconds));
  Puzzle threads(7, 400);
  same(threads.run({.best = 10, .simulations = 8, .threads = 4}).best, few.best);
}

TEST_CASE("a limit that rises again restores excluded candidates") {
  // A round has eight, after which candidate 8 is above the limit; after 9 it no longer is.
  constexpr std::size_t count = 10;
  std::vector<double> seconds(count, 2);
  seconds[8] = 4;
  seconds[9] = 1;
  const auto bound = [](std::size_t i) { return Bound{i == 8 ? 3.0 : 0.5, static_cast<double>(i)}; };
  const SearchSteps steps{.bound = bound,
                          .plan = [&](std::size_t i) -> std::optional<Bound> { return bound(i); },
                          .simulate = [&](std::size_t i) -> std::optional<double> { return seconds[i]; }};
  const auto limit = [](std::span<const SearchResult::Found> found) { return found.size() <= 8 ? 2.0 : 4.0; };
  const SearchResult found = search(count, steps, {.limit = limit});
  REQUIRE(found.best.size() == count);
  CHECK(found.best.front().candidate == 9);
  CHECK(found.best.back().candidate == 8);
  CHECK(found.cut == 0);
  same(found.best, search(count, steps, {.limit = limit, .exhaustive = true}).best);
}

TEST_CASE("an error of a simulation ends the search") {
  const SearchSteps steps{.bound = [](std::size_t) { return Bound{}; },
                          .plan = [](std::size_t) -> std::optional<Bound> { return Bound{}; },
                          .simulate = [](std::size_t i) -> std::optional<double> {
                            if (i == 3) fail(ErrorCode::internal, "broken");
                            return 1.0;
                          }};
  CHECK_THROWS_AS(static_cast<void>(search(8, steps, {.threads = 2})), Error);
}

TEST_CASE("no bound exceeds the simulated time if work varies or links are slow") {
  const runtime::MachineProfile profile = tests::plan_profile(false);
  double usual = 0, least = 0;
  for (const int draw : {0, 1, 2, 3}) {
    CAPTURE(draw);
    // One rank computes all the time, so that its bound is nearly its time.
    const apps::Planner planner(
        with(tests::small_gpt_flags(1, 1, 2), tests::given_flags("--offload none --policy 1f1b")), profile);
    const actors::PredictionOptions how{.disturbances = {.seed = static_cast<std::uint64_t>(draw), .jitter = 3}};
    const Ranking all = rank_candidates(planner, actors::predict, {.best = 100, .exhaustive = true}, how);
    REQUIRE(!all.best.empty());
    least = std::max(least, all.search.largest_bound_share);
    apps::Bounds bounds(planner);
    for (const apps::Ranked& ranked : all.best)
      usual = std::max(usual, bounds.of(planner.plan(ranked.candidate)).seconds / ranked.prediction.step_seconds);
  }
  CHECK(least <= 1);
  CHECK(usual > 1);  // the bounds of undisturbed work
}

TEST_CASE("no bound exceeds the simulated time, so a plan's best candidates are the best of all") {
  struct Job {
    bool gpu;
    std::vector<apps::GivenFlag> more;
  };
  const std::vector<Job> jobs = {
      {false, tests::given_flags("--policy 1f1b --all-gather ring --reduce-scatter ring --all-reduce ring")},
      {true,
       tests::given_flags("--precision bf16 --collectives plans --policy message-driven --clip 0 --microbatch-size "
                          "1 --all-gather auto --reduce-scatter auto --all-reduce auto")},
      {true, tests::given_flags("--precision bf16 --recompute off --offload none --microbatch-size 2")},
      {true, tests::given_flags("--chunks-per-rank 2 --recompute 1 --offload none --collectives plans")}};
  const auto few = jobs.begin() + tests::effort(4, 4, 1);
  int number = 0;
  std::size_t simulated = 0, simulated_all = 0;
  for (const Job& job : std::vector<Job>(jobs.begin(), few)) {
    CAPTURE(number++);
    const runtime::MachineProfile profile = tests::plan_profile(job.gpu);
    const apps::Planner planner(with(tests::small_gpt_flags(4, 2, 8), job.more), profile);
    const Ranking all = rank_candidates(planner, actors::predict, {.best = 10, .exhaustive = true});
    const Ranking cut = rank_candidates(planner, actors::predict, {.best = 10, .threads = 2});
    CHECK(all.search.largest_bound_share <= 1);
    CHECK(all.search.largest_bound_share > 0.3);
    same(cut.search.best, all.search.best);
    simulated_all += all.search.simulated;
    simulated += cut.search.simulated;
  }
  CHECK(simulated < simulated_all);
}
