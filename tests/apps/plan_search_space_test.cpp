#include "apps/plan/search_space.hpp"

#include "runtime/base/error.hpp"
#include "tests/apps/printed_errors.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::Candidate;
using apps::make_space;
using apps::SearchSpace;
using apps::SpaceOptions;

namespace {

template <typename Field>
std::set<Field> values(const SearchSpace& space, Field Candidate::* field) {
  std::set<Field> all;
  for (const Candidate& candidate : space.candidates) all.insert(candidate.*field);
  return all;
}

bool left_out(const SearchSpace& space, std::string_view words) {
  return std::any_of(space.left_out.begin(), space.left_out.end(),
                     [&](const auto& one) { return one.first.find(words) != std::string::npos && one.second > 0; });
}

}  // namespace

TEST_CASE("a plan's search space has every possible grid of all ranks, and the reasons against the others") {
  const SearchSpace space = make_space({.world = 24, .node_size = 8, .layers = 6, .batch_size = 48, .apart = true});
  CHECK(values(space, &Candidate::g_inter) == std::set{1, 2, 3, 4, 6});
  for (const Candidate& candidate : space.candidates) CHECK(candidate.g_inter * candidate.g_data == 24);
  CHECK(left_out(space, "does not divide 24 ranks"));
  CHECK(left_out(space, "more stages than 6 layers"));
  const SearchSpace odd = make_space({.world = 24, .node_size = 8, .layers = 6, .batch_size = 12, .apart = true});
  CHECK(values(odd, &Candidate::g_inter) == std::set{2, 4, 6});
  CHECK(left_out(odd, "--g-data does not divide --batch-size 12"));
}

TEST_CASE("candidates of a search space differ, and only those with groups have group sizes") {
  const SearchSpace space = make_space({.world = 16, .node_size = 4, .layers = 4, .batch_size = 32, .apart = true});
  std::set<std::string> texts;
  for (const Candidate& candidate : space.candidates) {
    CHECK(texts.insert(candidate.text()).second);
    if (candidate.shard == "zero2") CHECK(candidate.group_size == 0);
    if (candidate.shard == "mics") {
      CHECK(candidate.group_size > 1);
      CHECK(candidate.group_size < candidate.g_data);
      CHECK(candidate.g_data % candidate.group_size == 0);
    }
  }
  CHECK(values(space, &Candidate::shard).contains("paro-iig"));
  CHECK(values(space, &Candidate::policy).contains("gpipe"));
  CHECK(values(space, &Candidate::algorithms).contains("ho-ring"));
  CHECK(values(space, &Candidate::microbatch_size).contains(8));
}

TEST_CASE("a given flag has one value in a plan's search space") {
  SpaceOptions options{.world = 16, .node_size = 4, .layers = 4, .batch_size = 32, .apart = true};
  options.given = {{"g-inter", "2"},       {"shard", "zero1"},         {"microbatch-size", "2"},
                   {"recompute", "off"},   {"policy", "1f1b"},         {"offload", "myelin"},
                   {"all-gather", "ring"}, {"reduce-scatter", "ring"}, {"all-reduce", "auto"}};
  const SearchSpace space = make_space(options);
  REQUIRE(space.candidates.size() == 1);
  const auto flags = space.candidates.front().flags();
  CHECK(flags == std::vector<apps::GivenFlag>{{"g-inter", "2"}, {"g-data", "8"}, {"microbatch-size", "2"}});
}

TEST_CASE("with several model chunks per rank a search space has pipelines with enough layers") {
  SpaceOptions options{.world = 12, .node_size = 4, .layers = 6, .slices = 8, .batch_size = 24};
  options.given = {{"chunks-per-rank", "2"}};
  const SearchSpace space = make_space(options);
  CHECK(values(space, &Candidate::g_inter) == std::set{2, 3, 4});
  CHECK(values(space, &Candidate::policy) ==
        std::set<std::string>{"message-driven", "1f1b", "gpipe", "zero-bubble"});
  for (const Candidate& candidate : space.candidates) {
    const int row = 24 / candidate.g_data;
    const int microbatches = (row + candidate.microbatch_size - 1) / candidate.microbatch_size;
    if (candidate.policy == "1f1b") CHECK(microbatches % candidate.g_inter == 0);
  }
  CHECK(left_out(space, "needs several stages"));
  CHECK(left_out(space, "more model chunks than 8 layers"));
  CHECK(left_out(space, "1f1b needs microbatches in multiples of --g-inter"));
  options.given["g-inter"] = "6";
  CHECK(says(printed_error_of([&] { static_cast<void>(make_space(options)); }),
             "12 model chunks, but the model has 8 layers"));
  options.given["g-inter"] = "1";
  CHECK(says(printed_error_of([&] { static_cast<void>(make_space(options)); }), "remove --chunks-per-rank"));
}

TEST_CASE("states stay on a device without separate memory, and in memory without a disk") {
  SpaceOptions options{.world = 4, .node_size = 4, .layers = 4, .batch_size = 8};
  const SearchSpace host = make_space(options);
  CHECK(values(host, &Candidate::offload) == std::set<std::string>{"none"});
  CHECK(left_out(host, "share one memory"));
  options.apart = true;
  options.files = true;
  CHECK(values(make_space(options), &Candidate::offload).contains("infinity-nvme"));
}

TEST_CASE("zero++ has its second copy on the device or on the host, if these have separate memory") {
  SpaceOptions options{.world = 16, .node_size = 4, .layers = 4, .batch_size = 32, .apart = true};
  using Tiers = std::set<std::string>;
  for (const Candidate& candidate : make_space(options).candidates) {
    CHECK(candidate.secondary_tier.empty() == (candidate.shard != "zero++"));
    const bool says_host = candidate.text().find("second copy on host") != std::string::npos;
    CHECK(says_host == (candidate.secondary_tier == "host"));
    const auto flags = candidate.flags();
    const bool has_flag = std::ranges::find(flags, apps::GivenFlag{"secondary-tier", "host"}) != flags.end();
    CHECK(has_flag == (candidate.secondary_tier == "host"));
  }
  CHECK(values(make_space(options), &Candidate::secondary_tier) == Tiers{"", "same", "host"});
  options.given = {{"shard", "zero++"}};
  CHECK(values(make_space(options), &Candidate::secondary_tier) == Tiers{"same", "host"});
  options.given = {{"shard", "zero++"}, {"secondary-tier", "host"}};
  CHECK(values(make_space(options), &Candidate::secondary_tier) == Tiers{""});
  options.given = {};
  options.apart = false;
  CHECK(values(make_space(options), &Candidate::secondary_tier) == Tiers{""});
}

TEST_CASE("a search space without a grid is refused with a remedy") {
  check_usage_error({"multiple of 7"},
                    [] { static_cast<void>(make_space({.world = 7, .layers = 2, .batch_size = 10})); });
  SpaceOptions options{.world = 8, .layers = 4, .batch_size = 8};
  options.given = {{"g-inter", "3"}};
  CHECK(says(printed_error_of([&] { static_cast<void>(make_space(options)); }),
             "--g-inter 3 does not divide the number of ranks, 8"));
  options.given = {{"g-inter", "2"}, {"g-data", "2"}};
  CHECK(says(printed_error_of([&] { static_cast<void>(make_space(options)); }),
             "needs 4 ranks, but the job has 8; use --world 4"));
}
