// Sums over a unit's two uses, tested separately, on one stage and on two.
#include "actors/gradients/tied_units.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::UnitState;
using runtime::DType;

namespace {

constexpr std::size_t message_bytes = 256;

/// Columns that may round differently.
class OtherSums final : public collectives::CommunicatorFactory {
 public:
  std::unique_ptr<collectives::Communicator> communicator(collectives::TeamKind, int,
                                                          collectives::PlanCommunicator::Options) override {
    return nullptr;
  }
  bool sums_alike() const noexcept override { return false; }
};

class Stage {
 public:
  Stage(tests::BareRank& rank, DType dtype, std::uint64_t seed) : rank_(&rank), dtype_(dtype) {
    rank.plan.gradients.tied.options.message_bytes = message_bytes;
    part_ = std::make_unique<actors::TiedUnits>(rank.context(), rank.plan, rank.plan.gradients.tied, nullptr);
    for (std::size_t u = 0; u < rank.units().size(); ++u) {
      if (rank.units()[u].spec->name == "wte") wte_ = u;
    }
    for (std::size_t use = 0; use < wte().gradients.size(); ++use) {
      const actors::UnitView& part = wte().gradients[use];
      for (std::size_t e = 0; e < part.range.count; ++e)
        tests::write_as(dtype_, part.at(e), tests::drawn(seed, static_cast<std::size_t>(rank.plan.rank), use, e));
    }
  }

  [[nodiscard]] actors::TiedUnits& part() { return *part_; }
  [[nodiscard]] tests::BareRank& rank() { return *rank_; }
  [[nodiscard]] const UnitState& wte() const { return rank_->units()[wte_]; }
  [[nodiscard]] std::size_t wte_number() const { return wte_; }
  void sum() {
    part_->sum_uses(wte_, [this] { summed_ = true; });
  }
  [[nodiscard]] bool summed() const { return summed_; }
  [[nodiscard]] std::vector<float> values(std::size_t use = 0) const {
    const actors::UnitView& part = wte().gradients[use];
    std::vector<float> all;
    for (std::size_t e = 0; e < part.range.count; ++e) all.push_back(tests::read_as(dtype_, part.at(e)));
    return all;
  }

 private:
  tests::BareRank* rank_;
  DType dtype_;
  std::unique_ptr<actors::TiedUnits> part_;
  std::size_t wte_ = 0;
  bool summed_ = false;
};

actors::TrainerOptions options_of(int stages, int rows, DType dtype) {
  auto options = tests::small_run({stages, rows});
  options.precision = {dtype, dtype};
  return options;
}

struct Job {
  explicit Job(const actors::TrainerOptions& options, std::uint64_t seed,
               collectives::CommunicatorFactory* source = nullptr)
      : architecture(models::make_gpt(tests::in_precision(tests::small_gpt(2), options.precision))),
        grid(architecture, options, seed) {
    for (std::size_t r = 0; r < grid.size(); ++r) {
      grid[r].plan.column->source = source;
      stages.push_back(std::make_unique<Stage>(grid[r], options.precision.gradient, seed));
    }
  }

  models::Architecture architecture;
  tests::BareGrid grid;
  std::vector<std::unique_ptr<Stage>> stages;
};

/// Number of messages per unit.
std::size_t messages(const Stage& stage) {
  return (stage.wte().gradients.front().bytes() + message_bytes - 1) / message_bytes;
}

std::vector<float> sums(DType dtype, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> all;
  for (std::size_t e = 0; e < a.size(); ++e) all.push_back(tests::rounded(dtype, a[e] + b[e]));
  return all;
}

}  // namespace

TEST_CASE("two uses on one stage are summed in use 0, and a unit with one use is unchanged") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job(options_of(1, 1, dtype), 2);
    Stage& stage = *job.stages[0];
    REQUIRE(stage.wte().gradients.size() == 2);
    const auto expected = sums(dtype, stage.values(0), stage.values(1)), other = stage.values(1);
    stage.sum();
    job.grid.settle();
    CHECK(stage.summed());
    CHECK(stage.values(0) == expected);
    CHECK(stage.values(1) == other);
    for (std::size_t u = 0; u < job.grid[0].units().size(); ++u) {
      if (u == stage.wte_number()) continue;
      bool done = false;
      stage.part().sum_uses(u, [&done] { done = true; });
      CHECK(done);  // immediately
    }
    CHECK(stage.part().peers().empty());
    CHECK(stage.part().waits().empty());
    CHECK(stage.rank().sent == 0);
  }
}

TEST_CASE("two stages end with the same sum, message by message, in any order of arrival") {
  for (const std::uint64_t seed : test::seeds(24)) {
    CAPTURE(seed);
    const DType dtype = seed % 2 == 0 ? DType::f32 : DType::bf16;
    Job job(options_of(2, 1, dtype), seed);
    Stage &early = *job.stages[seed / 2 % 2], &late = *job.stages[1 - seed / 2 % 2];
    const auto expected = sums(dtype, early.values(), late.values());
    early.sum();
    job.grid.settle();
    const std::vector<actors::Wait> waits = early.part().waits();
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].what == "the gradients of the other use of wte");
    CHECK(waits[0].rank == late.rank().plan.rank);
    CHECK_FALSE(early.summed());
    CHECK(late.part().waits().empty());
    late.sum();
    job.grid.settle();
    for (Stage* const stage : {&early, &late}) {
      CHECK(stage->summed());
      CHECK(stage->values() == expected);
      CHECK(stage->part().waits().empty());
      CHECK(stage->rank().sent == messages(*stage));
    }
    CHECK(early.part().peers() == std::vector<int>{late.rank().plan.rank});
    CHECK(late.part().peers() == std::vector<int>{early.rank().plan.rank});
  }
}

TEST_CASE("if columns may round differently, the first stage sends its column's result, and no other stage does") {
  OtherSums other;
  for (collectives::CommunicatorFactory* const source : {static_cast<collectives::CommunicatorFactory*>(nullptr),
                                                         static_cast<collectives::CommunicatorFactory*>(&other)}) {
    Job job(options_of(2, 2, DType::f32), 8, source);
    for (const auto& stage : job.stages) {
      for (std::size_t u = 0; u < stage->rank().units().size(); ++u)
        CHECK(stage->part().copies(u) == (source != nullptr && u == stage->wte_number()));
    }
    if (source == nullptr) continue;
    const auto before = job.stages[0]->values();
    REQUIRE(job.stages[2]->values() != before);
    int done = 0;
    for (const std::size_t r : {0u, 2u}) {  // one row
      const actors::UnitView& sum = job.stages[r]->wte().gradients.front();
      // In two runs, neither of which is a multiple of a message.
      const runtime::Bytes whole(sum.data, sum.bytes());
      job.stages[r]->part().copy(job.stages[r]->wte_number(), {whole.first(1000), whole.subspan(1000)},
                                 [&done] { ++done; });
      job.grid.settle();
      if (r == 0) REQUIRE(job.stages[0]->part().waits().size() == 1);
      if (r == 0) CHECK(job.stages[0]->part().waits()[0].rank == 2);
    }
    CHECK(done == 2);
    CHECK(job.stages[0]->values() == before);
    CHECK(job.stages[2]->values() == before);
    CHECK(job.stages[0]->rank().sent == messages(*job.stages[0]));
    CHECK(job.stages[2]->rank().sent == 0);
  }
}
