// The reduction at the end of a batch, tested separately: units are summed in any order, and chunks are reduced in
// order.
#include "actors/gradients/batch_reduction.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::UnitState;

namespace {

actors::TrainerOptions options_of(const char* sharding, std::size_t chunk_buckets) {
  auto options = tests::bundled_run(sharding, 2);
  options.tiers.chunk_buckets = chunk_buckets;
  return options;
}

class Row {
 public:
  Row(tests::BareRank& rank, const tests::MadeUpGradients& gradients)
      : rank_(&rank),
        gradients_(&gradients),
        tied_(rank.context(), rank.plan, rank.plan.gradients.tied, nullptr),
        part_(rank.context(), rank.plan, rank.plan.gradients.batch, tied_, nullptr) {
    part_.when_reduced([this](std::size_t chunk) {
      chunks_.push_back(chunk);
      CHECK_FALSE(over_);
      check(chunk);
    });
  }

  void start() {
    chunks_.clear();
    over_ = false;
    part_.start([this] { over_ = true; });
  }
  void summed(std::size_t u) {
    const UnitState& unit = rank_->units()[u];
    const actors::UnitView& sum = unit.gradients.front();
    std::memset(sum.data, 0, sum.bytes());
    for (std::size_t e = 0; e < unit.spec->elements(); ++e) {
      if (tests::is_parameter(*unit.spec, e))
        tests::write_as(sum.dtype, sum.at(e), gradients_->of_row(rank_->plan.position.row, 1, *unit.spec, e));
    }
    part_.summed(u);
  }

  [[nodiscard]] const actors::BatchReduction& part() const { return part_; }
  [[nodiscard]] const std::vector<std::size_t>& chunks() const { return chunks_; }
  [[nodiscard]] bool over() const { return over_; }

 private:
  void check(std::size_t chunk) {
    std::size_t wrong = 0;
    for (const auto& bucket : rank_->plan.chunks.buckets(rank_->plan.chunks.chunks[chunk])) {
      const UnitState& unit = rank_->units()[bucket.unit];
      for (const collectives::Range& run : unit.cut.runs(unit.reduced, bucket.index)) {
        for (std::size_t e = run.begin; e < run.begin + run.count; ++e) {
          if (tests::is_parameter(*unit.spec, e))
            wrong += tests::read_as(runtime::DType::f32, unit.gradients.front().at(e)) !=
                     gradients_->reduced(1, *unit.spec, e);
        }
      }
    }
    CHECK(wrong == 0);
  }

  tests::BareRank* rank_;
  const tests::MadeUpGradients* gradients_;
  actors::TiedUnits tied_;
  actors::BatchReduction part_;
  std::vector<std::size_t> chunks_;
  bool over_ = false;
};

using Column = tests::PartOfRanks<Row>;

}  // namespace

TEST_CASE("chunks are reduced in one order on all ranks, regardless of the order of sums, batch after batch") {
  for (const std::uint64_t seed : test::seeds(16)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Column column(options_of(seed % 2 == 0 ? "ddp" : "NNI", 1 + seed % 3), seed);
    REQUIRE(column.grid[0].plan.chunks.chunks.size() > 1);
    for (int batch = 0; batch < 2; ++batch) {
      for (const auto& row : column.parts) row->start();
      for (const auto& row : column.parts) {
        std::vector<std::size_t> order = column.units();
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t unit : order) row->summed(unit);
      }
      column.grid.settle();
      for (const auto& row : column.parts) {
        CHECK(row->chunks() == tests::numbers_of(column.grid[0].plan.chunks.chunks.size()));
        CHECK(row->over());
        CHECK(row->part().waits().empty());
        CHECK(row->part().peers().size() == 1);
      }
    }
  }
}

TEST_CASE("a chunk waits for all of its units on all ranks, and later chunks wait for it") {
  Column column(options_of("ddp", 2), 7);
  const auto& chunks = column.grid[0].plan.chunks.chunks;
  for (const std::size_t late : column.units()) {
    CAPTURE(column.grid[0].units()[late].spec->name);
    std::size_t before = 0;  // chunks before the one with this unit
    const auto has = [&](const actors::ChunkSchedule::Chunk& chunk) {
      const auto buckets = column.grid[0].plan.chunks.buckets(chunk);
      return std::any_of(buckets.begin(), buckets.end(), [&](const auto& bucket) { return bucket.unit == late; });
    };
    while (!has(chunks[before])) ++before;
    for (const auto& row : column.parts) row->start();
    for (const std::size_t unit : column.units()) {
      column.parts[0]->summed(unit);
      if (unit != late) column.parts[1]->summed(unit);
    }
    column.grid.settle();
    for (const auto& row : column.parts) {
      CHECK(row->chunks() == tests::numbers_of(before));
      CHECK_FALSE(row->over());
    }
    REQUIRE_FALSE(column.parts[0]->part().waits().empty());
    const std::string first = column.parts[0]->part().waits().front().what;
    CHECK(first == "reduction of the gradients of " +
                       column.grid[0].plan.states->names(column.grid[0].plan.chunks.buckets(chunks[before])));
    CHECK(column.parts[1]->part().waits().empty());
    column.parts[1]->summed(late);
    column.grid.settle();
    for (const auto& row : column.parts) CHECK(row->over());
  }
}
