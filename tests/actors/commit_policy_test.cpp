// When a step's results become visible under each commit mode: an optimizer without other actors, with synthetic
// gradients and decisions.
#include "actors/base/rank_context.hpp"
#include "actors/optimizer/optimizer.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/core/initialize.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::TierKind;
using runtime::DType;

namespace {

enum class Commits { at_once, wait, flip };

constexpr models::Precision precision{DType::bf16, DType::f32};
constexpr std::size_t budget = 20'000;

using actors::UpdateRule;

/// Options of the update, and bytes of optimizer states that stay on the device.
struct Update {
  UpdateRule rule = UpdateRule::adamw;
  bool has_momentum = true;
  std::size_t budget = 0;
};

actors::TrainerOptions run_of(Commits commits, const Update& update) {
  auto options = tests::small_run({1, 1});
  options.precision = precision;
  options.clip = commits == Commits::at_once ? 0 : 1;
  options.tiers = {.optimizer = TierKind::host,
                   .optimizer_budget = update.budget,
                   .rule = update.rule,
                   .has_momentum = update.has_momentum,
                   .commit = commits == Commits::flip ? actors::Commit::flip : actors::Commit::wait,
                   .bucket_elements = 512};
  return options;
}

/// Gradient of an element of any unit in a batch.
float gradient(int batch, std::size_t element) {
  return std::cos(static_cast<float>(static_cast<std::size_t>(batch) * 1000 + element));
}

/// Options of the Nth committed step, clipped by `scale`.
runtime::UpdateOptions adamw(int step, double scale = 1) {
  return {.learning_rate = 1e-2, .step = step, .gradient_scale = scale};
}

class Alone {
 public:
  explicit Alone(Commits commits, const Update& update = {})
      : architecture_(models::make_gpt(tests::in_precision(tests::small_gpt(1), precision))),
        plan_(tests::plan_of(architecture_, run_of(commits, update), 0)),
        simulation_(1, {}),
        device_(runtime::make_inline_device()),
        resources_(simulation_.loop(0), simulation_.transport(0), *device_, plan_.memory, plan_.tiers) {
    const actors::RankContext& context = resources_.context();
    plan_.stage->bind(context.arena);
    plan_.states->bind(context.arena);
    parameters_ = std::make_unique<actors::ParameterStore>(context, plan_, plan_.parameters, nullptr);
    optimizer_ =
        std::make_unique<actors::Optimizer>(context, plan_, plan_.optimizer, *parameters_, nullptr, nullptr);
    for (const actors::UnitState& unit : plan_.states->all())
      std::memset(unit.parameters.data, 0, unit.parameters.bytes());
    for (const actors::StateArray& array : optimizer_->records().arrays()) {
      std::vector<float> values(array.range.count);
      const models::UnitSpec& unit = *plan_.states->all()[array.unit].spec;
      if (array.kind == actors::StateKind::weights) models::initialize(unit, 3, 0, unit.elements(), values.data());
      optimizer_->access_state(
          {offload::IoKind::write, array.unit, array.kind, 0, std::as_writable_bytes(std::span(values)), [] {}});
      settle();
    }
  }

  /// Runs a batch with the gradients of this number, up to the decision about its step.
  void reduce(int batch, const runtime::UpdateOptions& unclipped) {
    optimizer_->begin(unclipped);
    for (const actors::UnitState& unit : plan_.states->all()) {
      auto* const gradients = reinterpret_cast<float*>(unit.gradients.front().data);
      for (std::size_t e = 0; e < unit.elements; ++e) gradients[e] = gradient(batch, e);
    }
    for (std::size_t chunk = 0; chunk < plan_.chunks.chunks.size(); ++chunk) optimizer_->reduced(chunk);
    settle();
  }
  void counts(const runtime::UpdateOptions& options) {
    answer([&](runtime::Handler done) { optimizer_->step(options, std::move(done)); });
  }
  void skips() {
    answer([&](runtime::Handler done) { optimizer_->skip(std::move(done)); });
  }

  /// Parameters that layers read.
  [[nodiscard]] std::vector<std::byte> parameters() const {
    std::vector<std::byte> all;
    for (const actors::UnitState& unit : plan_.states->all())
      all.insert(all.end(), unit.parameters.data, unit.parameters.data + unit.parameters.bytes());
    return all;
  }
  /// Master weights and moments.
  [[nodiscard]] std::vector<std::vector<std::byte>> states() {
    std::vector<std::vector<std::byte>> all;
    for (const actors::StateArray& array : optimizer_->records().arrays()) {
      auto& values = all.emplace_back(array.range.count * sizeof(float));
      optimizer_->access_state({offload::IoKind::read, array.unit, array.kind, 0, values, [] {}});
      settle();
    }
    return all;
  }
  /// Elements of the arrays of states(), in the same order.
  [[nodiscard]] std::vector<std::vector<double>> numbers() {
    std::vector<std::vector<double>> all;
    for (const std::vector<std::byte>& bytes : states()) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      all.emplace_back(values.begin(), values.end());
    }
    return all;
  }
  [[nodiscard]] const std::vector<actors::UnitState>& units() const { return plan_.states->all(); }
  [[nodiscard]] const actors::Optimizer::Answers& answers() const { return optimizer_->answers(); }
  /// Number of buckets of units with optimizer states on the device.
  [[nodiscard]] std::int64_t buckets_on_device() const {
    std::size_t buckets = 0;
    for (const actors::UnitState& unit : plan_.states->all())
      if (unit.optimizer_on_device()) buckets += unit.cut.buckets();
    return static_cast<std::int64_t>(buckets);
  }

 private:
  template <typename Answer>
  void answer(const Answer& answer) {
    bool over = false;
    answer([&] { over = true; });
    settle();
    REQUIRE(over);
  }
  /// Runs until no event is left.
  void settle() {
    runtime::EventLoop& loop = simulation_.loop(0);
    loop.after(std::chrono::seconds(1), [&loop] { loop.stop(); });
    simulation_.run();
  }

  models::Architecture architecture_;
  actors::RankPlan plan_;
  runtime::Simulation simulation_;
  std::unique_ptr<runtime::Device> device_;
  actors::RankResources resources_;
  std::unique_ptr<actors::ParameterStore> parameters_;
  std::unique_ptr<actors::Optimizer> optimizer_;
};

}  // namespace

TEST_CASE("parameters of layers change before the decision only if every step is committed") {
  for (const Commits commits : {Commits::at_once, Commits::wait, Commits::flip}) {
    CAPTURE(static_cast<int>(commits));
    Alone job(commits);
    const auto before = job.parameters();
    job.reduce(1, adamw(1));
    CHECK((job.parameters() != before) == (commits == Commits::at_once));
    job.counts(adamw(1));
    CHECK(job.parameters() != before);
  }
}

TEST_CASE("committed steps have the same bits in every mode, and invalid speculative copies are unused") {
  Alone at_once(Commits::at_once), waits(Commits::wait), flips(Commits::flip);
  // Some units keep their states on the device.
  Alone partly_at_once(Commits::at_once, {.budget = budget}), partly_waits(Commits::wait, {.budget = budget}),
      partly_flips(Commits::flip, {.budget = budget});
  constexpr double scales[] = {1, 0.5, 0.25, 1};  // the third step starts with states that were clipped
  for (int step = 1; step <= 4; ++step) {
    CAPTURE(step);
    const auto answer = adamw(step, scales[step - 1]);
    at_once.reduce(step, answer);
    at_once.counts(answer);
    for (Alone* const job : {&waits, &flips, &partly_at_once, &partly_waits, &partly_flips}) {
      job->reduce(step, job == &partly_at_once ? answer : adamw(step));
      job->counts(answer);
      CHECK(job->states() == at_once.states());
      CHECK(job->parameters() == at_once.parameters());
    }
  }
  CHECK(waits.answers().flipped + waits.answers().again == 0);
  CHECK(flips.answers().flipped == 2);
  CHECK(flips.answers().again == 2);
  CHECK(flips.answers().buckets_ahead == flips.answers().buckets);  // all were updated before the decision
  // Only offloaded states have spare copies.
  CHECK(partly_flips.answers().flipped == 2);
  CHECK(partly_flips.buckets_on_device() > 0);
  CHECK(partly_flips.answers().buckets_ahead > 0);
  CHECK(partly_flips.answers().buckets - partly_flips.answers().buckets_ahead ==
        2 * partly_flips.buckets_on_device());
}

TEST_CASE("an uncommitted step changes no bit, and does not affect the next one") {
  for (const auto& [commits, bytes] : {std::pair<Commits, std::size_t>{Commits::wait, 0},
                                       {Commits::flip, 0},
                                       {Commits::wait, budget},
                                       {Commits::flip, budget}}) {
    INFO("commits ", static_cast<int>(commits), ", budget ", bytes);
    Alone job(commits, {.budget = bytes}), without(commits, {.budget = bytes});
    for (Alone* const each : {&job, &without}) {
      each->reduce(1, adamw(1));
      each->counts(adamw(1));
    }
    job.reduce(2, adamw(2));
    job.skips();
    CHECK(job.states() == without.states());
    CHECK(job.parameters() == without.parameters());
    for (Alone* const each : {&job, &without}) {
      each->reduce(3, adamw(2));
      each->counts(adamw(2));
    }
    CHECK(job.states() == without.states());
    CHECK(job.parameters() == without.parameters());
    CHECK(job.answers().skipped == 1);
    CHECK(job.answers().steps == 3);
  }
}

TEST_CASE("SGD with and without momentum follows its formula in doubles over 20 steps") {
  for (const bool has_momentum : {true, false}) {
    CAPTURE(has_momentum);
    Alone job(Commits::wait, {UpdateRule::sgd, has_momentum});
    const std::size_t arrays = has_momentum ? 2 : 1;  // weights, m
    auto expected = job.numbers();
    REQUIRE(expected.size() == arrays * job.units().size());
    for (int step = 1; step <= 20; ++step) {
      auto options = adamw(step, 0.5);
      options.momentum = 0.9;
      job.reduce(step, options);
      job.counts(options);
      for (std::size_t u = 0; u < job.units().size(); ++u) {
        std::vector<double>& weights = expected[u * arrays];
        for (const auto& [begin, end, decays] : job.units()[u].segments) {
          for (std::size_t e = begin; e < end; ++e) {
            double update = 0.5 * static_cast<double>(gradient(step, e));
            if (has_momentum) {
              double& m = expected[u * arrays + 1][e];
              update = m = options.momentum * m + update;
            }
            const double decay = decays ? options.weight_decay : 0;
            weights[e] = weights[e] * (1 - options.learning_rate * decay) - options.learning_rate * update;
          }
        }
      }
    }
    const auto numbers = job.numbers();
    for (std::size_t a = 0; a < numbers.size(); ++a) {
      double most = 0;
      for (std::size_t e = 0; e < numbers[a].size(); ++e)
        most = std::max(most, std::abs(numbers[a][e] - expected[a][e]));
      CHECK(most < 1e-6);  // values are around 1
    }
  }
}
