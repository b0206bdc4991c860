// Refreshed parameters on their way to other ranks and to a tier, tested separately, with synthetic steps in any order.
#include "actors/optimizer/parameter_refresh.hpp"

#include "actors/optimizer/state_records.hpp"
#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;
using actors::UnitState;
using models::Stage;

namespace {

constexpr float old = -1;

class Row {
 public:
  explicit Row(tests::BareRank& rank) : rank_(&rank) {
    if (in_tier()) {
      records_ =
          std::make_unique<actors::OffloadedParameters>(rank.context(), rank.plan, rank.plan.offloaded_parameters);
      records_->load([](const models::UnitSpec&, std::size_t,
                        std::span<float> out) { std::fill(out.begin(), out.end(), old); },
                     [] {});
    } else {
      for (const UnitState& unit : rank.units()) {
        for (std::size_t e = 0; e < unit.parameters.range.count; ++e)
          reinterpret_cast<float*>(unit.parameters.data)[e] = old;
      }
    }
    store_ =
        std::make_unique<actors::ParameterStore>(rank.context(), rank.plan, rank.plan.parameters, records_.get());
    part_ = std::make_unique<actors::ParameterRefresh>(rank.context(), rank.plan, rank.plan.optimizer.refresh,
                                                       *store_, records_.get());
    round_ = actors::BundleSweep(rank.plan, tests::numbers_of(rank.plan.chunks.bundles.size()));
    done_.assign(round_.bundles.size(), false);
    // Parameters of the next batch's forward pass.
    pass_ = models::forward_pass(rank.plan.stage->slice(0), 0).steps;
  }

  [[nodiscard]] actors::ParameterRefresh& part() { return *part_; }
  [[nodiscard]] actors::BundleSweep& round() { return round_; }
  [[nodiscard]] const std::vector<bool>& done() const { return done_; }
  [[nodiscard]] tests::BareRank& rank() { return *rank_; }
  [[nodiscard]] bool in_tier() const { return rank_->plan.options.tiers.parameters != TierKind::device; }

  /// The passes of a batch are over, and the next batch's passes announce their uses.
  void begin() {
    part_->begin();
    first_use_ = store_->announce({.steps = pass_});
  }
  /// Writes the new values of the part of a bundle that this rank updates.
  void step(std::size_t b) {
    actors::BundleSweep::Bundle& bundle = round_.bundles[b];
    if (in_tier()) part_->take_place(bundle);
    for (const actors::BundleSweep::Bucket& bucket : round_.of(bundle)) {
      const UnitState& unit = rank_->units()[bucket.bucket.unit];
      for (const collectives::Range& run : unit.cut.runs(unit.optimizer, bucket.bucket.index)) {
        for (std::size_t e = run.begin; e < run.begin + run.count; ++e)
          *at(bundle, bucket, e) = tests::numbered(bucket.bucket.unit, e);
      }
    }
    part_->stepped(round_, b, false, [this, b] {
      CHECK_FALSE(done_[b]);
      done_[b] = true;
      if (!in_tier()) check(b);
    });
  }
  /// Checks all parameters of a bundle that this rank keeps.
  void check(std::size_t b) {
    const actors::BundleSweep::Bundle& bundle = round_.bundles[b];
    std::size_t wrong = 0;
    for (const actors::BundleSweep::Bucket& bucket : round_.of(bundle)) {
      const UnitState& unit = rank_->units()[bucket.bucket.unit];
      for (const collectives::Range& run : unit.cut.runs(unit.parameters.range, bucket.bucket.index)) {
        for (std::size_t e = run.begin; e < run.begin + run.count; ++e)
          wrong += *reinterpret_cast<const float*>(unit.parameters.at(e)) != tests::numbered(bucket.bucket.unit, e);
      }
    }
    CHECK(wrong == 0);
  }
  /// Checks all units in the tier the same way.
  void check_records(tests::BareGrid& grid) {
    for (std::size_t u = 0; u < rank_->units().size(); ++u) {
      const UnitState& unit = rank_->units()[u];
      std::vector<float> values(unit.parameters.range.count);
      std::vector<std::byte> blocks(values.size() * sizeof(float) + 2 * offload::Tier::block_bytes);
      bool there = false;
      actors::StateRecords states(rank_->context(), rank_->plan, {}, records_.get());
      states.access({offload::IoKind::read, u, actors::StateKind::parameters, unit.parameters.range.begin,
                     std::as_writable_bytes(std::span(values)), [&there] { there = true; }, blocks});
      grid.settle();
      REQUIRE(there);
      std::size_t wrong = 0;
      for (std::size_t e = 0; e < values.size(); ++e)
        wrong += values[e] != tests::numbered(u, unit.parameters.range.begin + e);
      CHECK(wrong == 0);
    }
  }

  /// Whether all uses of the next pass may start.
  [[nodiscard]] bool all_ready() const {
    for (std::size_t use = 0; use < pass_.size(); ++use) {
      if (!store_->ready(first_use_ + use)) return false;
    }
    return true;
  }
  /// Checks that the uses before the first one with an unrefreshed unit may start, and no others.
  void check_uses() {
    const auto& stage = *rank_->plan.stage;
    bool may = true;
    std::uint64_t use = first_use_;
    for (const Stage::PassStep& step : pass_) {
      for (const std::size_t number : stage.uses_of(step)) may = may && whole(stage.uses()[number].unit);
      CHECK(store_->ready(use++) == may);
    }
  }

 private:
  [[nodiscard]] bool whole(std::size_t unit) const {
    for (std::size_t b = 0; b < done_.size(); ++b) {
      for (const auto& bucket : round_.bundles[b].buckets) {
        if (bucket.unit == unit && !done_[b]) return false;
      }
    }
    return true;
  }
  /// Address of a parameter that this rank keeps.
  [[nodiscard]] float* at(const actors::BundleSweep::Bundle& bundle, const actors::BundleSweep::Bucket& bucket,
                          std::size_t element) const {
    const UnitState& unit = rank_->units()[bucket.bucket.unit];
    if (!in_tier()) return reinterpret_cast<float*>(unit.parameters.at(element));
    std::size_t before = 0;
    for (const collectives::Range& run : unit.cut.runs(unit.parameters.range, bucket.bucket.index)) {
      if (run.contains({element, 1}))
        return reinterpret_cast<float*>(bundle.parameters.data(bucket.parameter_offset)) + before + element -
               run.begin;
      before += run.count;
    }
    FAIL("this rank does not keep the element");
    return nullptr;
  }

  tests::BareRank* rank_;
  std::unique_ptr<actors::OffloadedParameters> records_;
  std::unique_ptr<actors::ParameterStore> store_;
  std::unique_ptr<actors::ParameterRefresh> part_;
  actors::BundleSweep round_;
  std::vector<bool> done_;  // by bundle
  Stage::Pass pass_;
  std::uint64_t first_use_ = 0;
};

struct Column : tests::PartOfRanks<Row> {
  Column(const actors::TrainerOptions& options, std::uint64_t seed) : PartOfRanks(options, seed) { grid.settle(); }
  [[nodiscard]] std::size_t bundles() const { return parts[0]->round().bundles.size(); }
  [[nodiscard]] bool all_done() const {
    return std::all_of(parts.begin(), parts.end(), [](const auto& row) {
      return std::all_of(row->done().begin(), row->done().end(), [](bool done) { return done; });
    });
  }
};

}  // namespace

TEST_CASE("every rank ends with the updates of the others, in any order of their bundles") {
  constexpr const char* shardings[] = {"zero1", "NNI", "ING", "NIG"};
  for (const std::uint64_t seed : test::seeds(16)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Column column(tests::bundled_run(shardings[seed % 4], 4), seed);
    REQUIRE(column.bundles() > 2);
    for (const auto& row : column.parts) {
      CHECK_FALSE(row->part().is_local());
      row->begin();
      std::vector<std::size_t> order = tests::numbers_of(column.bundles());
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t b : order) row->step(b);
    }
    column.grid.settle();
    CHECK(column.all_done());
    for (const auto& row : column.parts) {
      for (std::size_t b = 0; b < column.bundles(); ++b) row->check(b);
      const auto named = row->part().peers();
      CHECK(std::set<int>(named.begin(), named.end()).size() == (column.grid[0].plan.flow.refresh.size() == 2 ? 2
                                                                 : seed % 4 == 0                              ? 3
                                                                                                              : 1));
      CHECK(row->part().waits().empty());
    }
  }
}

TEST_CASE(
    "a bundle waits for ranks that have not updated it and for earlier bundles, and passes wait for its units") {
  Column column(tests::bundled_run("zero1", 2), 5);
  for (const auto& row : column.parts) row->begin();
  Row &early = *column.parts[0], &late = *column.parts[1];
  early.check_uses();
  for (std::size_t b = 0; b < column.bundles(); ++b) early.step(b);
  column.grid.settle();
  CHECK(std::count(early.done().begin(), early.done().end(), true) == 0);
  REQUIRE_FALSE(early.part().waits().empty());
  CHECK(early.part().waits().front().what ==
        "gather of the refreshed parameters of " +
            column.grid[0].plan.states->names(early.round().bundles[0].buckets));
  CHECK(early.part().peers() == std::vector<int>{1});
  // All but the first one: later bundles wait for it.
  for (std::size_t b = 1; b < column.bundles(); ++b) late.step(b);
  column.grid.settle();
  CHECK(std::count(early.done().begin(), early.done().end(), true) == 0);
  CHECK(late.part().waits().empty());
  early.check_uses();
  late.step(0);
  column.grid.settle();
  CHECK(column.all_done());
  for (const auto& row : column.parts) row->check_uses();
}

TEST_CASE("bundles without a gather keep their order, too, and unchanged parameters are ready immediately") {
  Column column(tests::bundled_run("ddp", 1), 6);
  Row& row = *column.parts[0];
  CHECK(row.part().is_local());
  row.begin();
  for (std::size_t b = column.bundles(); b-- > 0;) {
    row.check_uses();
    row.step(b);
    column.grid.settle();
  }
  CHECK(column.all_done());
  row.check_uses();

  Column kept(tests::bundled_run("zero1", 2), 6);
  for (const auto& each : kept.parts) {
    each->begin();
    CHECK_FALSE(each->all_ready());
    each->part().keep_all();
  }
  kept.grid.settle();
  for (const auto& each : kept.parts) {
    CHECK(each->rank().sent == 0);
    CHECK(each->all_ready());
  }
}

TEST_CASE("parameters off the device pass through buffers to their tier, which are free again afterwards") {
  for (const char* sharding : {"ddp", "zero1", "zero3"}) {
    CAPTURE(std::string(sharding));
    auto options = tests::bundled_run(sharding, 2);
    options.tiers.parameters = options.tiers.optimizer = TierKind::host;
    Column column(options, 7);
    REQUIRE(column.bundles() > 3);
    for (const auto& row : column.parts) {
      CHECK(row->part().uses_places());
      row->part().begin();
    }
    std::size_t next = 0;
    while (next < column.bundles()) {
      const std::size_t first = next;
      for (; next < column.bundles() && column.parts[0]->part().has_place(); ++next) {
        for (const auto& row : column.parts) row->step(next);
      }
      CHECK(next > first);
      if (first == 0) CHECK(next == 3);
      column.grid.settle();
    }
    CHECK(column.all_done());
    for (const auto& row : column.parts) row->check_records(column.grid);
  }
}
