// Pulls of shards, tested separately: the owners asked, the replies, and the requests that wait for the owner's update.
#include "actors/states/shard_pulls.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::ShardPulls;
using actors::UnitView;

namespace {

constexpr float nothing = -1;

float value(std::size_t unit, std::size_t element, std::uint64_t version, bool secondary) {
  return static_cast<float>(unit * 40009 + element * 8 + version * 2 + (secondary ? 1 : 0));
}

class Row {
 public:
  explicit Row(tests::BareRank& rank) : rank_(&rank), versions_(rank.units().size(), 0) {
    part_ = std::make_unique<ShardPulls>(
        rank.context(), rank.plan, nullptr,
        [this](std::size_t unit, bool, std::uint64_t version) { return versions_[unit] >= version; });
    for (std::size_t u = 0; u < rank.units().size(); ++u) {
      write(u);
      places_.emplace_back(rank.units()[u].elements, nothing);
    }
    part_->start();
  }

  /// This rank's shards after the optimizer's update.
  void refresh(std::size_t u) {
    ++versions_[u];
    write(u);
  }
  [[nodiscard]] ShardPulls& part() { return *part_; }
  [[nodiscard]] tests::BareRank& rank() { return *rank_; }

  /// The ranks whose replies are pending, ascending.
  std::vector<int> ask(const std::vector<std::size_t>& units, bool backward, std::uint64_t version) {
    std::vector<ShardPulls::Fill> fills;
    for (const std::size_t u : units) {
      std::fill(places_[u].begin(), places_[u].end(), nothing);
      fills.push_back({u, u, reinterpret_cast<std::byte*>(places_[u].data()), backward});
    }
    std::vector<int> asked = part_->ask(fills, version, [this](int rank) { arrived_.push_back(rank); });
    std::sort(asked.begin(), asked.end());
    return asked;
  }
  /// Ranks whose replies have arrived since the last call.
  [[nodiscard]] std::vector<int> arrived() {
    std::vector<int> all = std::exchange(arrived_, {});
    std::sort(all.begin(), all.end());
    return all;
  }
  /// Checks that the shards of these rows are in the unit's buffer, in that version, and this rank's shard is
  /// unchanged.
  void check(std::size_t u, bool backward, std::uint64_t version, const std::vector<int>& rows) const {
    const actors::ShardOwners owners(rank_->plan);
    const auto wrong = [&](int row, const auto& expected) {
      const collectives::Range range = owners.range(u, backward, row);
      std::size_t count = 0;
      for (std::size_t e = range.begin; e < range.begin + range.count; ++e) count += places_[u][e] != expected(e);
      return count;
    };
    for (const int row : rows)
      CHECK(wrong(row, [&](std::size_t e) { return value(u, e, version, owners.own(u, backward).secondary); }) ==
            0);
    CHECK(wrong(rank_->plan.position.row, [](std::size_t) { return nothing; }) == 0);
  }

 private:
  void write(std::size_t u) {
    const auto fill = [&](const UnitView& part, bool secondary) {
      for (std::size_t e = part.range.begin; e < part.range.begin + part.range.count; ++e)
        tests::write_as(part.dtype, part.at(e), value(u, e, versions_[u], secondary));
    };
    fill(rank_->units()[u].parameters, false);
    if (rank_->units()[u].secondary) fill(*rank_->units()[u].secondary, true);
  }

  tests::BareRank* rank_;
  std::vector<std::uint64_t> versions_;     // by unit
  std::vector<std::vector<float>> places_;  // complete units
  std::vector<int> arrived_;
  std::unique_ptr<ShardPulls> part_;
};

struct Column : tests::PartOfRanks<Row> {
  Column(const char* sharding, int ranks, int layers, std::uint64_t seed)
      : PartOfRanks(models::make_gpt(tests::small_gpt(layers)), options(sharding, ranks), seed) {}
  static actors::TrainerOptions options(const char* sharding, int ranks) {
    auto run = tests::small_run({1, ranks}, sharding);
    run.batch_size = 8 * ranks;
    run.group_size = ranks % 2 == 0 ? 2 : 1;
    return run;
  }
};

}  // namespace

TEST_CASE("a rank gets the shards of all other owners, for any number of concurrent requests") {
  for (const std::uint64_t seed : test::seeds(16)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Column column("zero3", 3, 2, seed);
    std::vector<std::vector<std::size_t>> wanted;
    for (const auto& row : column.parts) {
      auto& units = wanted.emplace_back(column.units());
      std::shuffle(units.begin(), units.end(), random);
      units.resize(1 + random() % units.size());
      const int me = row->rank().plan.rank;
      CHECK(row->ask(units, random() % 2 == 0, 0) == std::vector<int>{me == 0 ? 1 : 0, me == 2 ? 1 : 2});
    }
    column.grid.settle();
    for (std::size_t r = 0; r < column.parts.size(); ++r) {
      const std::vector<int> others{r == 0 ? 1 : 0, r == 2 ? 1 : 2};
      CHECK(column.parts[r]->arrived() == others);
      for (const std::size_t u : wanted[r]) column.parts[r]->check(u, false, 0, others);
    }
  }
}

TEST_CASE("a request larger than a message gets several replies, each awaited separately") {
  Column column("zero3", 2, 8, 5);
  Row& row = *column.parts[0];
  REQUIRE(column.units().size() > 8);
  CHECK(row.ask(column.units(), false, 0) == std::vector<int>{1, 1});
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{1, 1});
  for (const std::size_t u : column.units()) row.check(u, false, 0, {1});
}

TEST_CASE("an owner replies when it has all requested shards in the requested version") {
  Column column("zero3", 3, 2, 9);
  Row& row = *column.parts[0];
  CHECK(row.ask({0, 2}, false, 1) == std::vector<int>{1, 2});
  column.grid.settle();
  CHECK(row.arrived().empty());
  // A request that can be answered overtakes it.
  CHECK(row.ask({1}, false, 0) == std::vector<int>{1, 2});
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{1, 2});
  row.check(1, false, 0, {1, 2});
  for (const std::size_t u : {0u, 2u}) column.parts[2]->refresh(u);
  column.parts[1]->refresh(0);
  for (const auto& each : column.parts) each->part().answer_waiting();
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{2});
  row.check(0, false, 1, {2});
  row.check(2, false, 1, {2});
  column.parts[1]->refresh(2);
  column.grid.settle();
  CHECK(row.arrived().empty());  // the owner was not notified of its new shards
  column.parts[1]->part().answer_waiting();
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{1});
  row.check(0, false, 1, {1, 2});
  row.check(2, false, 1, {1, 2});
  // A request that was answered is not answered again.
  const std::size_t sent = column.grid[1].sent;
  column.parts[1]->part().answer_waiting();
  column.grid.settle();
  CHECK(column.grid[1].sent == sent);
}

TEST_CASE(
    "backward passes request secondary shards within the group, forward passes request from the complete column") {
  Column column("zero++", 4, 2, 3);
  Row& row = *column.parts[0];
  const auto& group = column.grid[0].plan.column->layout.team(collectives::TeamKind::group).members;
  const int mate = group[0] == 0 ? group[1] : group[0];
  CHECK(row.ask({1}, true, 0) == std::vector<int>{mate});
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{mate});
  row.check(1, true, 0, {mate});
  CHECK(row.ask({1}, false, 0) == std::vector<int>{1, 2, 3});
  column.grid.settle();
  CHECK(row.arrived() == std::vector<int>{1, 2, 3});
  row.check(1, false, 0, {1, 2, 3});
  CHECK(Column("ddp", 2, 2, 1).parts[0]->ask({0, 1}, false, 0).empty());
}
