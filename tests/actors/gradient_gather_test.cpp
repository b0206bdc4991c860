// Gradients on their way to the optimizer's buffers, tested separately: gathered from other ranks, or fetched from a
// tier.
#include "actors/optimizer/gradient_gather.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;
using actors::UnitState;
using runtime::DType;

namespace {

class Row {
 public:
  explicit Row(tests::BareRank& rank) : rank_(&rank) {
    if (rank.plan.options.tiers.gradients != TierKind::device)
      records_ =
          std::make_unique<actors::OffloadedGradients>(rank.context(), rank.plan, rank.plan.offloaded_gradients);
    part_ = std::make_unique<actors::GradientGather>(rank.context(), rank.plan, rank.plan.optimizer.gradients,
                                                     records_.get());
    round_ = actors::BundleSweep(rank.plan, tests::numbers_of(rank.plan.chunks.bundles.size()));
    there_.assign(round_.bundles.size(), false);
  }

  /// Reduced gradients are in the buffers of the reduction.
  void reduce(tests::BareGrid& grid) {
    for (const actors::BundleSweep::Bucket& bucket : round_.buckets) {
      const auto& [u, index] = bucket.bucket;
      const UnitState& unit = rank_->units()[u];
      if (records_ == nullptr) {
        for (const collectives::Range& run : unit.cut.runs(unit.reduced, index)) {
          for (std::size_t e = run.begin; e < run.begin + run.count; ++e)
            tests::write_as(DType::f32, unit.gradients.front().at(e), tests::numbered(u, e));
        }
        continue;
      }
      runtime::Buffer memory = rank_->device.allocate(
          offload::Tier::whole_blocks(unit.cut.elements(unit.reduced, index) * sizeof(float)),
          runtime::MemorySpace::device);
      auto* to = reinterpret_cast<float*>(memory.data());
      for (const collectives::Range& run : unit.cut.runs(unit.reduced, index)) {
        for (std::size_t e = run.begin; e < run.begin + run.count; ++e) *to++ = tests::numbered(u, e);
      }
      records_->store_reduced(u, index, memory.data(), [] {});
      grid.settle();
    }
  }
  void bring(std::size_t b) {
    part_->bring(round_, b, [this, b] {
      CHECK_FALSE(there_[b]);
      there_[b] = true;
    });
  }
  /// The buffer has the complete range that this rank updates.
  void check(std::size_t b) const {
    const actors::BundleSweep::Bundle& bundle = round_.bundles[b];
    std::size_t wrong = 0;
    for (const actors::BundleSweep::Bucket& bucket : round_.of(bundle)) {
      const auto& [u, index] = bucket.bucket;
      const UnitState& unit = rank_->units()[u];
      const auto* from = reinterpret_cast<const float*>(bundle.gradients.data(bucket.gradient_offset));
      for (const collectives::Range& run : unit.cut.runs(unit.optimizer, index)) {
        for (std::size_t e = run.begin; e < run.begin + run.count; ++e) wrong += *from++ != tests::numbered(u, e);
      }
    }
    CHECK(wrong == 0);
  }

  [[nodiscard]] actors::GradientGather& part() { return *part_; }
  [[nodiscard]] actors::BundleSweep& round() { return round_; }
  [[nodiscard]] bool there(std::size_t b) const { return there_[b]; }

 private:
  tests::BareRank* rank_;
  std::unique_ptr<actors::OffloadedGradients> records_;
  std::unique_ptr<actors::GradientGather> part_;
  actors::BundleSweep round_;
  std::vector<bool> there_;  // by bundle
};

struct Column : tests::PartOfRanks<Row> {
  using PartOfRanks::PartOfRanks;
  [[nodiscard]] std::size_t bundles() const { return parts[0]->round().bundles.size(); }
};

}  // namespace

TEST_CASE(
    "buffers get all gradients of the range that a rank updates, as many bundles at a time as there are buffers") {
  struct Shape {
    const char* sharding;
    int rows;
    TierKind tier;
  };
  constexpr Shape shapes[] = {{"NGN", 2, TierKind::device}, {"IGI", 4, TierKind::device},
                              {"NGN", 2, TierKind::host},   {"IGI", 4, TierKind::host},
                              {"ddp", 2, TierKind::host},   {"zero3", 2, TierKind::host}};
  for (const std::uint64_t seed : test::seeds(12)) {
    CAPTURE(seed);
    const auto& [sharding, rows, tier] = shapes[seed % 6];
    CAPTURE(std::string(sharding));
    auto options = tests::bundled_run(sharding, rows);
    options.tiers.gradients = tier;
    options.tiers.optimizer = tier;
    Column column(options, seed);
    REQUIRE(column.bundles() > 3);
    for (const auto& row : column.parts) {
      CHECK(row->part().needed());
      row->reduce(column.grid);
    }
    std::size_t begun = 0, places = 0;
    for (std::size_t next = 0; next < column.bundles(); ++next) {
      for (; begun < column.bundles() && column.parts[0]->part().has_place(); ++begun) {
        for (const auto& row : column.parts) row->bring(begun);
      }
      if (places == 0) places = begun;
      CHECK(begun == std::min(column.bundles(), next + places));
      column.grid.settle();
      for (const auto& row : column.parts) {
        REQUIRE(row->there(next));
        row->check(next);
        row->round().bundles[next].gradients.release();
        row->round().bundles[next].gradients.release();  // has no effect
      }
    }
    CHECK(places > 1);
    for (const auto& row : column.parts) CHECK(row->part().waits().empty());
  }
}

TEST_CASE("a gather names the bundles that other ranks have not contributed yet, and its peers") {
  Column column(tests::bundled_run("NGN", 2), 3);
  for (const auto& row : column.parts) row->reduce(column.grid);
  Row& early = *column.parts[0];
  early.bring(0);
  column.grid.settle();
  CHECK_FALSE(early.there(0));
  REQUIRE(early.part().waits().size() == 1);
  CHECK(early.part().waits()[0].what ==
        "gather of the gradients of " + column.grid[0].plan.states->names(early.round().bundles[0].buckets));
  CHECK(early.part().peers() == std::vector<int>{1});
  column.parts[1]->bring(0);
  column.grid.settle();
  for (const auto& row : column.parts) row->check(0);
  CHECK(early.there(0));
}

TEST_CASE("gradients that a rank already has in the range that it updates need no buffer") {
  for (const char* sharding : {"ddp", "zero1", "zero3", "paro-iig"}) {
    Column column(tests::bundled_run(sharding, 4), 1);
    CHECK_FALSE(column.parts[0]->part().needed());
    CHECK_FALSE(column.parts[0]->part().has_place());
    CHECK(column.parts[0]->part().peers().empty());
  }
}
