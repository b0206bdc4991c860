// The rows of synthetic rankings.
#include "apps/plan/plan_report.hpp"
#include "apps/plan/rows.hpp"
#include "tests/apps/small_plan.hpp"

using namespace ranvier;
using apps::Candidate;
using apps::PlanRow;
using apps::SearchResult;
using Members = std::vector<std::size_t>;

namespace {

/// The common values of all candidates in these tests.
const Candidate base{.g_inter = 2,
                     .g_data = 4,
                     .shard = "zero1",
                     .group_size = 0,
                     .offload = "none",
                     .microbatch_size = 4,
                     .recompute = "off",
                     .policy = "message-driven",
                     .algorithms = "auto"};

Candidate with(Candidate candidate, const std::string& flag, const std::string& value) {
  if (flag == "recompute") candidate.recompute = value;
  if (flag == "policy") candidate.policy = value;
  if (flag == "algorithms") candidate.algorithms = value;
  return candidate;
}

/// Candidate n takes seconds[n], in ascending order.
struct Constructed {
  std::vector<Candidate> candidates;
  std::vector<SearchResult::Found> found;

  void add(const Candidate& candidate, double seconds) {
    found.push_back({candidates.size(), seconds});
    candidates.push_back(candidate);
  }
  [[nodiscard]] std::vector<Members> rows(std::size_t most = 10) const {
    std::vector<Members> all;
    for (const PlanRow& row : apps::rows_of(candidates, found, most)) all.push_back(row.members);
    return all;
  }
};

}  // namespace

TEST_CASE("candidates that differ in one flag and take the same time share a row") {
  Constructed one;
  one.add(base, 1);
  one.add(with(base, "policy", "1f1b"), 1.005);
  one.add(with(base, "recompute", "auto"), 1.0051);  // takes longer
  CHECK(one.rows() == std::vector<Members>{{0, 1}, {2}});
  CHECK(apps::switches_text(std::vector{one.candidates[0], one.candidates[1]}) == "--policy message-driven|1f1b");
  CHECK(apps::switches_text(std::vector{base}).empty());
}

TEST_CASE("candidates that differ in two flags, in their grids or in their shardings have separate rows") {
  Constructed two;
  two.add(base, 1);
  two.add(with(with(base, "policy", "1f1b"), "recompute", "auto"), 1);
  Candidate other_grid = base;
  other_grid.g_inter = 4;
  other_grid.g_data = 2;
  two.add(other_grid, 1);
  Candidate other_sharding = base;
  other_sharding.shard = "zero2";
  two.add(other_sharding, 1);
  CHECK(two.rows() == std::vector<Members>{{0}, {1}, {2}, {3}});
  // A candidate between two of them joins their rows, unless it takes longer.
  two.add(with(base, "policy", "1f1b"), 1.004);
  CHECK(two.rows() == std::vector<Members>{{0, 1, 4}, {2}, {3}});
  two.found.back().seconds = 1.006;
  CHECK(two.rows() == std::vector<Members>{{0}, {1}, {2}, {3}, {4}});
}

TEST_CASE("a row lists each flag in which its candidates differ, starting with the values that it shows") {
  Constructed all;
  all.add(base, 1);
  all.add(with(base, "policy", "1f1b"), 1.001);
  all.add(with(all.candidates[1], "recompute", "auto"), 1.002);  // differs in one flag from another member
  CHECK(all.rows() == std::vector<Members>{{0, 1, 2}});
  CHECK(apps::switches_text(all.candidates) == "--recompute off|auto, --policy message-driven|1f1b");
}

TEST_CASE("a row shows its candidate with the fewest non-default flags, and of several the fastest") {
  Constructed all;
  all.add(with(base, "algorithms", "ring"), 1);
  all.add(with(base, "policy", "1f1b"), 1.001);  // two flags from the first
  all.add(base, 1.002);                          // between them
  all.add(with(base, "policy", "gpipe"), 1.003);
  CHECK(all.rows() == std::vector<Members>{{2, 0, 1, 3}});
  CHECK(apps::is_default({"recompute", "off"}));
  CHECK(apps::is_default({"policy", "message-driven"}));
  CHECK(apps::is_default({"all-reduce", "auto"}));
  CHECK(apps::is_default({"offload", "none"}));
  CHECK_FALSE(apps::is_default({"recompute", "auto"}));
}

TEST_CASE("times of a row are compared with its fastest, so that a chain of candidates does not drift") {
  Constructed chain;
  const std::vector<std::string> policies{"message-driven", "1f1b", "gpipe", "zero-bubble", "zb-h1"};
  for (std::size_t n = 0; n < policies.size(); ++n)
    chain.add(with(base, "policy", policies[n]), 1 + 0.003 * static_cast<double>(n));
  CHECK(chain.rows() == std::vector<Members>{{0, 1}, {2, 3}, {4}});
}

TEST_CASE("a limit keeps candidates that may join the last requested row") {
  Constructed all;
  all.add(base, 1);
  CHECK(apps::rows_limit(all.candidates, all.found, 2) == std::numeric_limits<double>::infinity());
  all.add(with(base, "policy", "1f1b"), 2);
  all.add(with(base, "recompute", "auto"), 3);
  CHECK(apps::rows_limit(all.candidates, all.found, 2) == doctest::Approx(2.01));
  CHECK(all.rows(2) == std::vector<Members>{{0}, {1}});
}

TEST_CASE("ranvier-plan prints ten different plans, and its JSON has all candidates of each") {
  const tests::Flags words = tests::small_job({});
  apps::PlanTools tools = tests::invented_tools();
  const std::string text = run_plan(tests::parse(words), tools).text;
  CHECK(tests::has(text, " 10  "));
  CHECK(tests::has(text, "best plans for 4 ranks on test-cpu in fp32, 8 samples per step"));
  CHECK(tests::has(text, "\n     same time with --"));
  const auto report = boost::json::parse(run_plan(tests::parse(join(words, "--json")), tools).text);
  CHECK(report.at("precision") == "fp32");
  const auto& best = report.at("best").as_array();
  CHECK(best.size() == 10);
  std::size_t others = 0;
  for (const auto& row : best) {
    const auto* const alternatives = row.as_object().if_contains("alternatives");
    if (alternatives == nullptr) continue;
    for (const auto& one : alternatives->as_array()) {
      const double ratio = one.at("step_seconds").as_double() / row.at("step_seconds").as_double();
      CHECK(ratio == doctest::Approx(1).epsilon(0.0051));
      CHECK(one.at("flags").is_object());
      CHECK(one.at("candidate") != row.at("candidate"));
      ++others;
    }
  }
  CHECK(others > 0);
}

TEST_CASE("ranvier-plan plans for GPUs in bf16 by default, and reports it") {
  auto words = tests::small_job("--policy 1f1b --offload none --recompute off");
  *std::find(words.begin(), words.end(), "test-cpu") = "test-gpu";
  const std::string text = run_plan(tests::parse(words), tests::invented_tools()).text;
  CHECK(tests::has(text, "best plans for 4 ranks on test-gpu in bf16, "));
  words.add("--precision fp32 --json");
  const auto report = boost::json::parse(run_plan(tests::parse(words), tests::invented_tools()).text);
  CHECK(report.at("precision") == "fp32");
  CHECK(report.at("best").at(0).at("flags").at("precision") == "fp32");
}
