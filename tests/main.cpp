#include <doctest/doctest.h>

#include "runtime/host/compute_pool.hpp"
#include "tests/device_under_test.hpp"
#include "tests/seeds.hpp"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace {

std::uint64_t drawn_seed = 0;
std::optional<std::uint64_t> chosen_seed;
unsigned passing = 0;  // test cases that match the filters

/// Detects filters that match no test case: a mistyped name must not look like a success.
struct CountCases final : doctest::IReporter {
  explicit CountCases(const doctest::ContextOptions& /*options*/) {}
  void test_run_end(const doctest::TestRunStats& stats) override { passing = stats.numTestCasesPassingFilters; }
  void report_query(const doctest::QueryData& query) override {
    if (query.run_stats != nullptr) passing = query.run_stats->numTestCasesPassingFilters;
  }
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData& /*test*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*test*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*assertion*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}
};
REGISTER_LISTENER("count", 1, CountCases);

}  // namespace

std::uint64_t ranvier::test::random_seed() noexcept { return chosen_seed.value_or(drawn_seed); }

std::vector<std::uint64_t> ranvier::test::seeds(std::uint64_t count, std::uint64_t first) {
  if (chosen_seed) return {*chosen_seed};
  constexpr std::uint64_t many = 40;
  std::vector<std::uint64_t> all(sanitized && count >= many ? count / 8 : count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

int main(int argc, char** argv) {
  constexpr int skipped = 77;
  if (const auto reason = ranvier::tests::missing_device()) {
    std::printf("skipped: %s\n", reason->c_str());
    return skipped;
  }
  constexpr std::string_view flag = "--seed=";
  drawn_seed = std::random_device{}();
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(flag)) chosen_seed = std::strtoull(argv[i] + flag.size(), nullptr, 0);
  }
  ::setenv("RANVIER_PROFILE", "none", 1);  // jobs that a test starts do not use the user's profile
  ranvier::runtime::set_pool_spin_time(std::chrono::nanoseconds(0));  // many of these programs run concurrently
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (status != 0 || passing > 0 || context.shouldExit()) return status;
  std::vector<const char*> count(argv, argv + argc);
  count.insert(count.end(), {"--no-skip", "--count"});
  doctest::Context(static_cast<int>(count.size()), count.data()).run();
  if (passing > 0) return 0;  // the matching test cases belong to other builds
  std::fprintf(stderr, "no test case matches this name or file\n");
  return 1;
}
