// Parameter stores of a column, tested separately: passes request units, which must have the current batch's values.
#include "actors/states/parameter_store.hpp"

#include "tests/actors/actors_alone.hpp"
#include "tests/test.hpp"

#include <deque>

using namespace ranvier;
using actors::Policy;
using models::Stage;
using std::chrono::microseconds;

namespace {

constexpr int batches = 3, passes_of_batch = 5;

float value(std::size_t unit, std::size_t element, int batch) {
  return static_cast<float>(unit * 40009 + element * 4 + static_cast<std::size_t>(batch));
}

/// A rank of the column, with simulated passes and optimizer: units are refreshed one by one and late, while the next
/// batch's passes already request them.
class Row {
 public:
  Row(tests::BareRank& rank, std::uint64_t seed)
      : rank_(&rank),
        records_(rank.plan.offloaded_parameters.parameters.empty()
                     ? nullptr
                     : std::make_unique<actors::OffloadedParameters>(rank.context(), rank.plan,
                                                                     rank.plan.offloaded_parameters)),
        store_(rank.context(), rank.plan, rank.plan.parameters, records_.get()),
        own_(seed + static_cast<std::uint64_t>(rank.plan.rank)),
        // Collectives need the same passes on all rows, pulls do not.
        passes_(pulls() ? seed + static_cast<std::uint64_t>(rank.plan.rank) : seed) {
    for (std::size_t u = 0; u < units().size(); ++u) write(u);
    rank.loop.post([this] {
      store_.start();
      begin_batch();
    });
  }

  ~Row() {
    for (const auto stream : {rank_->context().compute, rank_->context().reduce, rank_->context().gather})
      stream.synchronize();
  }

  [[nodiscard]] const actors::ParameterStore& store() const { return store_; }
  [[nodiscard]] bool pulls() const { return rank_->plan.parameters.options.pulls; }
  [[nodiscard]] int provided() const { return provided_; }

  /// The passes of all rows are over: parameters change.
  void begin_next_batch() {
    ++batch_;
    store_.begin_refresh();
    std::vector<std::size_t> order = tests::numbers_of(units().size());
    std::shuffle(order.begin(), order.end(), own_);
    runtime::Duration at{};
    for (const std::size_t u : order) {
      if (!units()[u].trained()) continue;
      at += microseconds(own_() % 1000);
      rank_->loop.after(at, [this, u] {
        write(u);
        store_.refreshed(u);
      });
    }
    begin_batch();
  }

  std::function<void()> looks = [] {};  ///< called occasionally
  std::function<void()> over;           ///< called when a batch's passes are over

 private:
  struct Announced {
    models::OrderedPass pass;
    bool backward = false;
    std::uint64_t use = 0;
    std::size_t next = 0;
  };

  [[nodiscard]] const std::vector<actors::UnitState>& units() const { return rank_->units(); }

  [[nodiscard]] float current(std::size_t u, std::size_t element) const {
    return value(u, element, units()[u].trained() ? batch_ : 0);
  }

  /// This rank's piece after the optimizer's update.
  void write(std::size_t u) {
    const actors::UnitView& part = units()[u].parameters;
    auto* const to = reinterpret_cast<float*>(part.data);
    for (std::size_t e = 0; e < part.range.count; ++e) to[e] = current(u, part.range.begin + e);
  }

  void begin_batch() {
    for (int p = 0; p < passes_of_batch; ++p) {
      const bool backward = p > 0 && passes_() % 2 == 0;
      Announced& next = queue_.emplace_back();
      next.backward = backward;
      next.pass = backward ? backward_pass(rank_->plan.stage->slice(0), 0, {})
                           : forward_pass(rank_->plan.stage->slice(0), 0);
    }
    announce();
    advance();
  }

  /// Announces a pass while the previous one runs, or when that is over.
  void announce() {
    while (announced_ < queue_.size() && announced_ < (own_() % 2 == 0 ? 1u : 2u)) {
      Announced& next = queue_[announced_++];
      next.use = store_.announce({.steps = next.pass.steps, .backward = next.backward});
    }
  }

  void advance() {
    while (!queue_.empty()) {
      Announced& running = queue_.front();
      for (; running.next < running.pass.steps.size(); ++running.next) {
        const Stage::PassStep& step = running.pass.steps[running.next];
        if (!store_.uses(step)) continue;
        if (!store_.ready(running.use)) {
          store_.when_ready(running.use, [this] { advance(); });
          return;
        }
        models::StepArrays arrays;
        store_.provide(running.use, arrays);
        check(step, arrays);
        if (store_.queued(running.use)) {
          // The stream runs steps in order, late, and their inputs must stay valid until then.
          rank_->context().compute.launch([this, step, arrays](runtime::ComputePool&) { check(step, arrays); });
          rank_->loop.after_work(rank_->context().compute, {"test", "a step"},
                                 [this, use = running.use] { store_.done(use); });
        }
        ++running.use;
      }
      queue_.pop_front();
      --announced_;
      announce();
      looks();
    }
    rank_->loop.after_work(rank_->context().compute, {"test", "the passes"}, over);
  }

  void check(const Stage::PassStep& step, const models::StepArrays& arrays) {
    for (const std::size_t use : rank_->plan.stage->uses_of(step)) {
      const auto& [layer, index, unit] = rank_->plan.stage->uses()[use];
      const auto* const values = reinterpret_cast<const float*>(arrays.parameters[index]);
      bool same = true;
      for (std::size_t e = 0; e < units()[unit].elements; ++e) same = same && values[e] == current(unit, e);
      CHECK(same);
      ++provided_;
    }
  }

  tests::BareRank* rank_;
  std::unique_ptr<actors::OffloadedParameters> records_;
  actors::ParameterStore store_;
  std::mt19937_64 own_, passes_;
  std::deque<Announced> queue_;
  std::size_t announced_ = 0;
  int batch_ = 0, provided_ = 0;
};

/// The first stage.
struct Column {
  /// `frozen`: pattern of units that are not trained.
  explicit Column(const actors::TrainerOptions& options, std::uint64_t seed, const char* frozen = "")
      : architecture(models::make_gpt(tests::small_gpt(3), models::make_tuning("", frozen))),
        grid(architecture, options, seed) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(options.grid.g_data); ++r) {
      rows.push_back(std::make_unique<Row>(grid[r], seed));
      rows.back()->over = [this] {
        if (++over < rows.size()) return;
        over = 0;
        if (++batch == batches) return;
        for (std::size_t row = 0; row < rows.size(); ++row)
          grid[row].loop.post([this, row] { rows[row]->begin_next_batch(); });
      };
    }
  }

  models::Architecture architecture;
  tests::BareGrid grid;
  std::vector<std::unique_ptr<Row>> rows;
  std::size_t over = 0;  // rows whose passes are over
  int batch = 0;
};

actors::TrainerOptions options_of(const char* sharding, Policy policy, int rows) {
  auto options = tests::small_run({2, rows}, sharding);
  options.batch_size = 4 * rows;
  options.group_size = 2;
  options.policy = policy;
  return options;
}

}  // namespace

TEST_CASE("passes find the units of their batch, gathered or pulled, however late these are refreshed") {
  constexpr std::array shardings{"ddp", "zero3", "mics", "zero++", "paro-igg"};
  for (const std::uint64_t seed : test::seeds(80)) {
    CAPTURE(seed);
    const char* sharding = shardings[seed % shardings.size()];
    CAPTURE(std::string(sharding));
    auto options = options_of(sharding, seed / 5 % 2 == 0 ? Policy::message_driven : Policy::one_f_one_b, 4);
    options.prefetch = static_cast<int>(seed / 10 % 4);
    options.reuse = seed / 40 % 2 == 0;
    options.recompute = seed / 3 % 2 == 0 ? 0 : 1;
    options.tiers.secondary = seed / 5 % 3 == 0 ? actors::TierKind::device : actors::TierKind::host;
    Column column(options, seed, seed / 2 % 2 == 0 ? "" : "^h.0");
    int waits = 0;
    for (std::size_t r = 0; r < column.rows.size(); ++r) {
      Row& row = *column.rows[r];
      const std::vector<int> peers = row.store().peers();
      CHECK(peers.empty() == (std::string(sharding) == "ddp"));
      row.looks = [&row, &waits, peers, r] {
        for (const actors::Wait& wait : row.store().waits()) {
          ++waits;
          CHECK(wait.what.starts_with("the gather of the parameters of "));
          // The owner of a requested piece is known, the delaying rank of a collective is not.
          CHECK(wait.rank.has_value() == row.pulls());
          if (!wait.rank) continue;
          CHECK(*wait.rank != static_cast<int>(r));
          CHECK(std::find(peers.begin(), peers.end(), *wait.rank) != peers.end());
        }
      };
    }
    column.grid.settle();
    CHECK(column.batch == batches);
    for (const auto& row : column.rows) CHECK(row->provided() > 50);
    if (std::string(sharding) == "ddp") CHECK(waits == 0);
  }
}

TEST_CASE("a store names the ranks whose pieces are missing, and no others") {
  auto options = options_of("zero3", Policy::message_driven, 3);
  options.group_size = 1;
  Column column(options, 3);
  bool asked = false;
  // Rank 2 replies to no request: it stops before it can.
  column.grid[2].loop.stop();
  column.grid[0].loop.after(std::chrono::seconds(1), [&] {
    std::vector<int> late;
    for (const actors::Wait& wait : column.rows[0]->store().waits()) late.push_back(wait.rank.value_or(-1));
    CHECK_FALSE(late.empty());
    CHECK(std::count(late.begin(), late.end(), 2) == static_cast<std::ptrdiff_t>(late.size()));
    asked = true;
  });
  column.grid.settle();
  CHECK(asked);
}
