// The reduction of gradients, tested separately: simulated passes announce steps, wait for buffers and write, on all
// ranks of small grids. The results are compared with plain sums in the promised order.
#include "actors/gradients/gradient_sync.hpp"

#include "runtime/base/error.hpp"
#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

#include <deque>

using namespace ranvier;
using actors::TierKind;
using actors::UnitState;
using models::Stage;
using runtime::DType;

namespace {

actors::TrainerOptions options_of(runtime::GridShape grid, const char* sharding) {
  auto options = tests::bundled_run(sharding, grid.g_data);
  options.grid = grid;
  return options;
}

models::Architecture architecture_of(const actors::TrainerOptions& options) {
  models::GptOptions gpt = tests::small_gpt(2);
  gpt.vocab_size = 150;  // so that the tied unit takes several messages, also in complete blocks of a tier
  return models::make_gpt(tests::in_precision(gpt, options.precision));
}

/// A rank with the reduction of gradients and its dependencies.
class Reduction {
 public:
  Reduction(tests::BareRank& rank, const tests::MadeUpGradients& gradients) : rank_(&rank), gradients_(&gradients) {
    rank.plan.gradients.tied.options.message_bytes = offload::Tier::block_bytes;
    if (in_tier())
      records_ =
          std::make_unique<actors::OffloadedGradients>(rank.context(), rank.plan, rank.plan.offloaded_gradients);
    sync_ = std::make_unique<actors::GradientSync>(rank.context(), rank.plan, rank.plan.gradients, records_.get());
    sync_->when_reduced([this](std::size_t chunk) {
      chunks_.push_back(chunk);
      CHECK_FALSE(over_);
      // Like the optimizer, which takes gradients that are off the device or in borrowed buffers before more can come.
      for (const auto& bucket : rank_->plan.chunks.buckets(rank_->plan.chunks.chunks[chunk]))
        in_tier() ? take(bucket) : check(bucket);
    });
    steps_ = models::backward_pass(rank.plan.stage->slice(0), 0, {}).steps;
  }

  /// Starts a batch of this many microbatches, whose passes run when pass() allows them.
  void start(int microbatches) {
    microbatches_ = microbatches;
    announced_ = running_ = allowed_ = 0;
    next_ = 0;
    chunks_.clear();
    checked_ = 0;
    over_ = false;
    sync_->start(microbatches, [this] { over_ = true; });
  }
  /// Allows this many additional backward passes; each is announced up to `ahead` passes before it starts.
  void pass(int count, int ahead) {
    allowed_ += count;
    ahead_ = ahead;
    rank_->loop.post([this] { advance(); });
  }

  [[nodiscard]] const actors::GradientSync& part() const { return *sync_; }
  [[nodiscard]] tests::BareRank& rank() const { return *rank_; }
  [[nodiscard]] bool over() const { return over_; }

  /// After the batch: each chunk was reported once, in order, with the exact bits.
  void check() const {
    REQUIRE(over_);
    CHECK(chunks_ == tests::numbers_of(rank_->plan.chunks.chunks.size()));
    std::size_t buckets = 0;
    for (const auto& bundle : rank_->plan.chunks.bundles) buckets += bundle.buckets.size();
    CHECK(checked_ == buckets);
    for (std::size_t u = 0; u < rank_->units().size(); ++u) {
      const UnitState& unit = rank_->units()[u];
      double squares = 0;
      for (std::size_t e = unit.reduced.begin; e < unit.reduced.begin + unit.reduced.count; ++e) {
        const double gradient = expected(unit, e);
        squares += gradient * gradient;
      }
      CHECK(sync_->sum_of_squares(u) == doctest::Approx(squares).epsilon(1e-5));
    }
  }

 private:
  [[nodiscard]] bool in_tier() const { return rank_->plan.options.tiers.gradients != TierKind::device; }
  [[nodiscard]] DType dtype() const { return rank_->plan.options.precision.gradient; }
  [[nodiscard]] float expected(const UnitState& unit, std::size_t element) const {
    if (!tests::is_parameter(*unit.spec, element)) return 0;
    return gradients_->reduced(microbatches_, *unit.spec, element);
  }

  void advance() {
    while (running_ < allowed_) {
      for (; announced_ < microbatches_ && announced_ <= running_ + ahead_; ++announced_)
        firsts_.push_back(
            sync_->microbatches().announce({.steps = steps_, .microbatch = announced_, .backward = true}));
      for (; next_ < steps_.size(); ++next_) {
        const Stage::PassStep& step = steps_[next_];
        if (step.kind != Stage::PassStep::Kind::backward_weight) continue;
        if (!sync_->microbatches().ready(firsts_.front()))
          return sync_->microbatches().when_ready(firsts_.front(), [this] { advance(); });
        write(firsts_.front()++, step);
      }
      firsts_.pop_front();
      next_ = 0;
      ++running_;
    }
  }

  void write(std::uint64_t number, const Stage::PassStep& step) {
    models::StepArrays arrays;
    sync_->microbatches().provide(number, arrays);
    const int microbatch = running_;
    const auto compute = rank_->context().compute;
    compute.launch([this, to = std::vector<std::byte*>(arrays.gradients.begin(), arrays.gradients.end()), step,
                    microbatch, adds = arrays.accumulate](runtime::ComputePool&) {
      const auto& stage = *rank_->plan.stage;
      for (const std::size_t use : stage.uses_of(step)) {
        const auto& [layer, index, unit] = stage.uses()[use];
        gradients_->write(to[index], rank_->plan.position.row, microbatch, rank_->plan.layers.front().begin + layer,
                          *rank_->units()[unit].spec, adds);
      }
    });
    if (!sync_->microbatches().queued(number)) return;
    rank_->loop.after_work(compute, {"test", "gradients"}, [this, number] { sync_->microbatches().done(number); });
  }

  void check(const actors::ChunkSchedule::Bucket& bucket) {
    const actors::UnitView& sum = rank_->units()[bucket.unit].gradients.front();
    compare(bucket, [&sum](std::size_t e) { return sum.at(e); });
  }
  void take(const actors::ChunkSchedule::Bucket& bucket) {
    const UnitState& unit = rank_->units()[bucket.unit];
    const std::size_t width = runtime::size_of(dtype());
    const auto memory = std::make_shared<runtime::Buffer>(
        rank_->device.allocate(offload::Tier::whole_blocks(unit.cut.elements(unit.reduced, bucket.index) * width),
                               runtime::MemorySpace::device));
    records_->fetch_reduced(bucket.unit, bucket.index, memory->data(), [this, bucket, memory, width] {
      compare(bucket,
              [from = memory->data(), width](std::size_t) mutable { return std::exchange(from, from + width); });
    });
  }
  /// `next` has the elements of a bucket one after another.
  template <typename F>
  void compare(const actors::ChunkSchedule::Bucket& bucket, F next) {
    const UnitState& unit = rank_->units()[bucket.unit];
    std::size_t wrong = 0;
    for (const collectives::Range& run : unit.cut.runs(unit.reduced, bucket.index)) {
      for (std::size_t e = run.begin; e < run.begin + run.count; ++e)
        wrong += tests::read_as(dtype(), next(e)) != expected(unit, e);
    }
    CAPTURE(unit.spec->name);
    CHECK(wrong == 0);
    ++checked_;
  }

  tests::BareRank* rank_;
  const tests::MadeUpGradients* gradients_;
  std::unique_ptr<actors::OffloadedGradients> records_;
  std::unique_ptr<actors::GradientSync> sync_;
  Stage::Pass steps_;
  int microbatches_ = 0, announced_ = 0, running_ = 0, allowed_ = 0, ahead_ = 0;
  std::size_t next_ = 0;              // step of the pass that runs
  std::deque<std::uint64_t> firsts_;  // for each announced pass, the number of its next step that writes
  std::vector<std::size_t> chunks_;
  std::size_t checked_ = 0;  // buckets
  bool over_ = false;
};

struct Job : tests::PartOfRanks<Reduction> {
  Job(const actors::TrainerOptions& options, std::uint64_t seed)
      : PartOfRanks(architecture_of(options), options, seed) {}

  void check_and_no_waits() const {
    for (const auto& rank : parts) {
      rank->check();
      CHECK(rank->part().waits().empty());
    }
  }
};

std::set<int> peers_of(const actors::Actor& part) {
  const std::vector<int> peers = part.peers();
  return {peers.begin(), peers.end()};
}

}  // namespace

TEST_CASE("gradients are summed over microbatches in order, uses, then ranks, under every scope, stages and tier") {
  struct Shape {
    const char* sharding;
    int rows;
  };
  // By scope of gradients N, N, N, I, I, I, G, G; in hops of two ranks each.
  constexpr std::array shapes = {Shape{"NNN", 2}, Shape{"ING", 4}, Shape{"NNI", 4}, Shape{"NIN", 4},
                                 Shape{"IIG", 4}, Shape{"III", 2}, Shape{"NGG", 2}, Shape{"IGG", 4}};
  for (const std::uint64_t seed : test::seeds(64)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Shape& shape = shapes[seed % shapes.size()];
    CAPTURE(std::string(shape.sharding));
    auto options = options_of({1 + static_cast<int>(random() % 2), shape.rows}, shape.sharding);
    if (random() % 3 == 0) options.precision = {DType::bf16, DType::bf16};
    if (random() % 3 == 0) options.tiers.gradients = TierKind::host;
    if (random() % 2 == 0) options.clip = 0;  // chunks are updated as they are reduced
    options.prefetch = static_cast<int>(random() % 3);
    options.tiers.chunk_buckets = 1 + random() % 3;
    Job job(options, seed);
    for (int batch = 0; batch < 2; ++batch) {
      const int microbatches = 1 + static_cast<int>(random() % 4);
      for (const auto& rank : job.parts) {
        rank->start(microbatches);
        rank->pass(microbatches, static_cast<int>(random() % 2));
      }
      job.grid.settle();
      for (const auto& rank : job.parts) rank->check();
    }
    for (const auto& rank : job.parts) {
      CHECK(rank->part().waits().empty());
      CHECK(peers_of(rank->part()) == rank->rank().peers);
    }
  }
}

TEST_CASE("a reduction names the operations that other ranks delay, and none before and after it") {
  struct Shape {
    const char* sharding;
    const char* waits;
  };
  for (const auto& [sharding, begins] : {Shape{"ddp", "reduction of the gradients of "},
                                         Shape{"zero2", "reduce-scatter of the gradients of layer "}}) {
    CAPTURE(std::string(sharding));
    Job job(options_of({1, 2}, sharding), 5);
    Reduction &late = *job.parts[0], &early = *job.parts[1];
    CHECK(early.part().waits().empty());
    for (const auto& rank : job.parts) rank->start(2);
    job.grid.settle();
    CHECK(early.part().waits().empty());  // passes belong to this rank
    const auto begin = early.rank().loop.now();
    early.pass(2, 0);
    job.grid.settle();
    const std::vector<actors::Wait> waits = early.part().waits();
    CHECK_FALSE(waits.empty());
    for (std::size_t w = 0; w < waits.size(); ++w) {
      CHECK(waits[w].what.starts_with(begins));
      CHECK_FALSE(waits[w].rank.has_value());  // the delaying rank of a collective is unknown
      CHECK(waits[w].since > begin);
      CHECK(waits[w].since < begin + std::chrono::seconds(1));
      if (w > 0) CHECK(waits[w - 1].since <= waits[w].since);
    }
    CHECK(late.part().waits().empty());
    CHECK_FALSE(early.over());
    late.pass(2, 0);
    job.grid.settle();
    job.check_and_no_waits();
  }
}

TEST_CASE("a stage that has finished names the rank with the other use of a tied unit") {
  for (const TierKind tier : {TierKind::device, TierKind::host}) {
    auto options = options_of({2, 1}, "ddp");
    options.tiers.gradients = tier;
    Job job(options, 9);
    for (const auto& rank : job.parts) rank->start(1);
    job.parts[1]->pass(1, 0);
    job.grid.settle();
    const std::vector<actors::Wait> waits = job.parts[1]->part().waits();
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].what == "the gradients of the other use of wte");
    CHECK(waits[0].rank == 0);
    CHECK(job.parts[0]->part().waits().empty());
    job.parts[0]->pass(1, 0);
    job.grid.settle();
    job.check_and_no_waits();
  }
}

TEST_CASE("a reduction's peers are the ranks of its hops, and in its row the rank that has a tied unit, too") {
  // Three stages of four rows in groups of two: rank r is row r % 4 of stage r / 4.
  Job job(options_of({3, 4}, "IIG"), 1);
  const auto row = [](int rank) { return rank % 4; };
  for (int r = 0; r < 12; ++r) {
    const int stage = r / 4 * 4;
    std::set<int> expected = {stage + (row(r) ^ 1), stage + (row(r) ^ 2)};
    if (stage == 0) expected.insert(8 + row(r));
    if (stage == 8) expected.insert(row(r));
    CHECK(peers_of(job.parts[static_cast<std::size_t>(r)]->part()) == expected);
  }
  CHECK(peers_of(Job(options_of({1, 1}, "ddp"), 1).parts[0]->part()).empty());
}

TEST_CASE("a reduction has no training state: every batch starts without any") {
  Job job(options_of({1, 2}, "zero2"), 3);
  const actors::GradientSync& part = job.parts[0]->part();
  CHECK(std::string(part.name()) == "gradients");
  CHECK(part.scalars().empty());
}
