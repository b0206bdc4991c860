// Reduction of microbatch gradients, tested separately: the steps that have buffers, their contents, and notifications.
#include "actors/gradients/microbatch_reduction.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;
using models::Stage;

namespace {

constexpr int blocks = 3;

actors::TrainerOptions options_of(int rows, const char* sharding, int ahead) {
  auto options = tests::small_run({1, rows}, sharding);
  options.batch_size = 8 * rows;
  options.group_size = rows;
  options.prefetch = ahead;
  return options;
}

/// A rank whose layers write when the test requests it.
class Row {
 public:
  Row(tests::BareRank& rank, const tests::MadeUpGradients& gradients) : rank_(&rank), gradients_(&gradients) {
    if (rank.plan.options.tiers.gradients != TierKind::device)
      records_ =
          std::make_unique<actors::OffloadedGradients>(rank.context(), rank.plan, rank.plan.offloaded_gradients);
    part_ = std::make_unique<actors::MicrobatchReduction>(
        rank.context(), rank.plan, rank.plan.gradients.microbatch, records_.get(),
        [this](const Stage::PassStep& step) { completed_.push_back(step); });
    pass_ = models::backward_pass(rank.plan.stage->slice(0), 0, {}).steps;
    for (const Stage::PassStep& step : pass_) {
      if (step.kind == Stage::PassStep::Kind::backward_weight) writes_.push_back(step);
    }
  }

  [[nodiscard]] actors::MicrobatchReduction& part() { return *part_; }
  /// The steps of a pass that write gradients.
  [[nodiscard]] const Stage::Pass& writes() const { return writes_; }
  [[nodiscard]] const Stage::Pass& completed() const { return completed_; }
  [[nodiscard]] bool is_block(std::size_t step) const {
    return name(rank_->plan.stage->uses_of(writes_[step]).front()).starts_with("h.");
  }
  std::uint64_t announce(int microbatch) {
    return part_->announce({.steps = pass_, .microbatch = microbatch, .backward = true});
  }

  /// Checks that the step has a buffer with the expected contents, and fills it as the layer does.
  void write(std::uint64_t number, std::size_t step, int microbatch, bool adds) {
    REQUIRE(part_->ready(number));
    models::StepArrays arrays;
    part_->provide(number, arrays);
    CHECK(arrays.accumulate == adds);
    for (const std::size_t use : rank_->plan.stage->uses_of(writes_[step])) {
      const auto& [layer, index, unit] = rank_->plan.stage->uses()[use];
      const models::UnitSpec& spec = *rank_->units()[unit].spec;
      std::byte* const place = arrays.gradients[index];
      for (std::size_t e = 0; adds && e < spec.elements(); ++e) {
        if (tests::is_parameter(spec, e))
          CHECK(tests::read_as(runtime::DType::f32, place + e * sizeof(float)) ==
                gradients_->value(0, 0, layer, spec, e));
      }
      gradients_->write(place, rank_->plan.position.row, microbatch, layer, spec, adds);
    }
    REQUIRE(part_->queued(number));
    part_->done(number);
  }

 private:
  [[nodiscard]] const std::string& name(std::size_t use) const {
    return rank_->units()[rank_->plan.stage->uses()[use].unit].spec->name;
  }

  tests::BareRank* rank_;
  const tests::MadeUpGradients* gradients_;
  std::unique_ptr<actors::OffloadedGradients> records_;
  std::unique_ptr<actors::MicrobatchReduction> part_;
  Stage::Pass pass_, writes_, completed_;
};

struct Column : tests::PartOfRanks<Row> {
  Column(const actors::TrainerOptions& options, std::uint64_t seed)
      : PartOfRanks(models::make_gpt(tests::small_gpt(blocks)), options, seed) {}
};

}  // namespace

TEST_CASE("blocks have buffers for one step and the prefetched ones, until their contents have been sent") {
  for (int ahead = 0; ahead <= blocks; ++ahead) {
    CAPTURE(ahead);
    Column column(options_of(2, "zero2", ahead), 4);
    Row& row = *column.parts[0];
    std::vector<std::uint64_t> numbers;  // steps of blocks
    for (const auto& each : column.parts) {
      each->part().start(1);
      REQUIRE(each->announce(0) == 0);
    }
    for (std::size_t s = 0; s < row.writes().size(); ++s) {
      if (row.is_block(s)) numbers.push_back(s);
    }
    REQUIRE(numbers.size() == blocks);
    std::size_t written = 0;  // blocks
    for (std::size_t s = 0; s < row.writes().size(); ++s) {
      const auto have_places = std::min<std::size_t>(blocks, written + 1 + static_cast<std::size_t>(ahead));
      for (std::size_t b = written; b < numbers.size(); ++b)
        CHECK(row.part().ready(numbers[b]) == (b < have_places));
      bool heard = false;
      const bool waits = have_places < blocks && row.is_block(s);
      if (waits) row.part().when_ready(numbers[have_places], [&heard] { heard = true; });
      row.write(s, s, 0, false);
      column.grid.settle();
      CHECK_FALSE(heard);  // the other row has not written it
      column.parts[1]->write(s, s, 0, false);
      column.grid.settle();
      CHECK(heard == waits);
      if (row.is_block(s)) ++written;
    }
    for (const auto& each : column.parts) CHECK(each->completed() == each->writes());
  }
}

TEST_CASE("steps are reported complete with the last microbatch, in the order of the steps") {
  for (const std::uint64_t seed : test::seeds(8)) {
    CAPTURE(seed);
    Column column(options_of(2, seed % 2 == 0 ? "zero2" : "mics", blocks), seed);
    constexpr int microbatches = 3;
    for (const auto& row : column.parts) row->part().start(microbatches);
    for (int m = 0; m < microbatches; ++m) {
      for (const auto& row : column.parts) {
        CHECK(row->completed().empty());
        const std::uint64_t first = row->announce(m);
        for (std::size_t s = 0; s < row->writes().size(); ++s) row->write(first + s, s, m, false);
      }
      column.grid.settle();
    }
    for (const auto& row : column.parts) CHECK(row->completed() == row->writes());
  }
}

TEST_CASE("with sums off the device, layers find them in their buffers") {
  auto options = options_of(1, "ddp", 1);
  options.tiers.gradients = TierKind::host;
  Column column(options, 6);
  Row& row = *column.parts[0];
  row.part().start(2);
  // The second pass is announced before any buffer of the first one is released.
  const std::uint64_t first = row.announce(0), second = row.announce(1);
  for (std::size_t s = 0; s < row.writes().size(); ++s) CHECK_FALSE(row.part().ready(second + s));
  for (std::size_t s = 0; s < row.writes().size(); ++s) {
    row.write(first + s, s, 0, false);
    column.grid.settle();
  }
  for (std::size_t s = 0; s < row.writes().size(); ++s) {
    row.write(second + s, s, 1, true);
    column.grid.settle();
  }
  CHECK(row.completed() == row.writes());
  CHECK(row.part().peers().empty());
  CHECK(row.part().waits().empty());
}
