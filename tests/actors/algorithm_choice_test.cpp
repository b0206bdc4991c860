#include "actors/states/algorithm_choice.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using collectives::Collective;
using collectives::Link;
using collectives::TeamKind;

namespace {

const collectives::PlanChoice& of(const PlanChoices& choices, TeamKind kind) {
  return choices[static_cast<std::size_t>(kind)];
}

const std::vector<int> two_by_two{0, 0, 1, 1};
constexpr std::size_t large = std::size_t{1} << 22;

}  // namespace

TEST_CASE("algorithm names from flags are used for every team, and unknown ones are refused") {
  const auto choices =
      choose_algorithms(two_by_two, 2, {.names = {"ho-ring", "hierarchical", "torus"}, .largest = {large, large}});
  for (const auto& choice : choices) {
    CHECK(choice.all_gather == "ho-ring");
    CHECK(choice.reduce_scatter == "hierarchical");
    CHECK(choice.all_reduce == "torus");
  }
  CHECK_THROWS_AS(
      static_cast<void>(choose_algorithms(two_by_two, 2, {.names = {"best"}, .largest = {large, large}})), Error);
}

TEST_CASE("algorithm names of earlier runs are reused for their team if the flags leave the choice open") {
  const KeptAlgorithms kept{
      {{"ring", "ring", "ring"}, {"ring", "hierarchical", "torus"}, {"ho-ring", "ring", "ring"}}};
  const auto choices = choose_algorithms(
      two_by_two, 2, {.names = {.all_reduce = "ho-ring"}, .kept = kept, .largest = {large, large}});
  for (std::size_t k = 0; k < kept.size(); ++k) {
    CHECK(choices[k].all_gather == kept[k].all_gather);
    CHECK(choices[k].reduce_scatter == kept[k].reduce_scatter);
    CHECK(choices[k].all_reduce == "ho-ring");
  }
}

TEST_CASE("if ranks share a slow link between nodes, the column does not use a flat ring") {
  const auto choices = choose_algorithms(two_by_two, 2, {.largest = {large, large}});
  CHECK(of(choices, TeamKind::column).all_gather != "ring");
  CHECK(of(choices, TeamKind::column).reduce_scatter != "ring");
  CHECK(of(choices, TeamKind::column).all_reduce != "ring");
}

TEST_CASE("the chosen algorithm is no slower than any other, for teams that work concurrently") {
  const std::vector<int> nodes{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  for (const int group_size : {3, 6}) {
    const auto choices = choose_algorithms(nodes, group_size, {.largest = {12 * 32 * 1000, 12 * 32 * 1000}});
    for (const TeamKind kind : {TeamKind::column, TeamKind::group, TeamKind::replicas}) {
      const auto teams = teams_of(nodes, group_size, kind);
      const std::size_t elements = 12 * 32 * 1000 / std::size_t(kind == TeamKind::replicas ? group_size : 1);
      const auto seconds = [&](const collectives::Algorithm& algorithm) {
        return seconds_together(teams, nodes, algorithm, of(choices, kind), elements, runtime::DType::f32,
                                assumed_links);
      };
      for (const Collective collective :
           {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
        const double chosen = seconds(of(choices, kind).algorithm_of(collective));
        for (const auto& each : collectives::algorithms(collective)) CHECK(chosen <= seconds(each));
      }
    }
  }
}

TEST_CASE("the algorithm of gathers in blocks is the fastest for their bytes, and sums in blocks need none") {
  const std::vector<int> nodes{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  using collectives::WireType;
  constexpr std::size_t rows = 12, group_size = 3;
  bool differs = false;
  for (const std::size_t blocks : {1, 4, 16, 64, 256, 1024}) {
    const std::size_t elements = rows * 256 * blocks;
    const ChoiceOptions options{
        .largest = {elements, elements},
        .wire = {.gather = {WireType::int8, WireType::int8}, .reduce = {WireType::int4, WireType::int4}}};
    const auto choices = choose_algorithms(nodes, group_size, options);
    const auto plain = choose_algorithms(nodes, group_size, {.largest = {elements, elements}});
    for (const TeamKind kind : {TeamKind::column, TeamKind::group, TeamKind::replicas}) {
      CAPTURE(blocks);
      const auto teams = teams_of(nodes, group_size, kind);
      const std::size_t words = elements / (kind == TeamKind::replicas ? group_size : 1) / 256 * 65;
      const auto seconds = [&](const collectives::Algorithm& algorithm) {
        return seconds_together(teams, nodes, algorithm, of(choices, kind), words, runtime::DType::i32,
                                assumed_links);
      };
      const double chosen = seconds(of(choices, kind).algorithm_of(Collective::all_gather));
      for (const auto& each : collectives::algorithms(Collective::all_gather)) CHECK(chosen <= seconds(each));
      CHECK(of(choices, kind).reduce_scatter == collectives::algorithms(Collective::reduce_scatter).front().name);
      CHECK(of(choices, kind).all_reduce == collectives::algorithms(Collective::all_reduce).front().name);
      differs = differs || of(choices, kind).reduce_scatter != of(plain, kind).reduce_scatter;
    }
  }
  CHECK(differs);
}

TEST_CASE("teams that share their nodes' links take the time that those links need for all of them") {
  // Replicas: two teams of two ranks, all of their bytes through one link of each node.
  const auto replicas = teams_of(two_by_two, 2, TeamKind::replicas);
  REQUIRE(replicas.size() == 2);
  const Link slow{.latency_seconds = 0, .bytes_per_second = 1e6, .node_bytes_per_second = 1e6};
  const auto& ring = collectives::algorithm(Collective::all_gather, "ring");
  const collectives::PlanChoice whole{.chunk_bytes = std::size_t{1} << 30, .depth = 1};
  const auto seconds = [&](std::span<const collectives::Team> teams) {
    return seconds_together(teams, two_by_two, ring, whole, 500'000, runtime::DType::f32, {slow, slow});
  };
  CHECK(seconds({replicas.data(), 1}) == doctest::Approx(1));
  CHECK(seconds(replicas) == doctest::Approx(2));
}

TEST_CASE("operations that the given sharding does not use are not considered") {
  const ChoiceOptions all{.largest = {large, large}};
  ChoiceOptions of_mics = all;
  of_mics.sharding = collectives::parse_sharding("mics");
  const auto wanted = choose_algorithms(two_by_two, 2, all), chosen = choose_algorithms(two_by_two, 2, of_mics);
  CHECK(of(chosen, TeamKind::column).all_gather == "ring");
  CHECK(of(wanted, TeamKind::column).all_gather != "ring");
  CHECK(of(chosen, TeamKind::group).all_gather == of(wanted, TeamKind::group).all_gather);
  CHECK(of(chosen, TeamKind::group).reduce_scatter == of(wanted, TeamKind::group).reduce_scatter);
  CHECK(of(chosen, TeamKind::replicas).all_reduce == of(wanted, TeamKind::replicas).all_reduce);
}

TEST_CASE("the reduction is chosen for the largest unit with gradients, the gather for the largest of all units") {
  const auto all = choose_algorithms(two_by_two, 2, {.largest = {large, large}});
  constexpr std::size_t small = 256;
  const auto of_small = choose_algorithms(two_by_two, 2, {.largest = {small, small}});
  const auto mostly_frozen = choose_algorithms(two_by_two, 2, {.largest = {large, small}});
  REQUIRE(of(all, TeamKind::column).all_reduce != of(of_small, TeamKind::column).all_reduce);
  for (const TeamKind kind : {TeamKind::column, TeamKind::group, TeamKind::replicas}) {
    CHECK(of(mostly_frozen, kind).all_gather == of(all, kind).all_gather);
    CHECK(of(mostly_frozen, kind).reduce_scatter == of(of_small, kind).reduce_scatter);
    CHECK(of(mostly_frozen, kind).all_reduce == of(of_small, kind).all_reduce);
  }
  const auto frozen = choose_algorithms(two_by_two, 2, {.largest = {large, 0}});
  CHECK(of(frozen, TeamKind::column).all_reduce == collectives::algorithms(Collective::all_reduce).front().name);
}

TEST_CASE("the teams of one kind contain every rank once") {
  const std::vector<int> nodes{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  for (const auto& [kind, count, size] :
       {std::tuple{TeamKind::column, 1, 12}, {TeamKind::group, 6, 2}, {TeamKind::replicas, 2, 6}}) {
    const auto teams = teams_of(nodes, 2, kind);
    CHECK(std::ssize(teams) == count);
    std::vector<int> members;
    for (const auto& team : teams) {
      CHECK(std::ssize(team.members) == size);
      members.insert(members.end(), team.members.begin(), team.members.end());
    }
    std::sort(members.begin(), members.end());
    for (int rank = 0; rank < 12; ++rank) CHECK(members[static_cast<std::size_t>(rank)] == rank);
  }
}
