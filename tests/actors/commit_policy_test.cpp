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

actors::TrainerOptions run_of(Commits commits) {
  auto options = tests::small_run({1, 1});
  options.precision = precision;
  options.clip = commits == Commits::at_once ? 0 : 1;
  options.tiers = {.optimizer = TierKind::host,
                   .commit = commits == Commits::flip ? actors::Commit::flip : actors::Commit::wait,
                   .bucket_elements = 512};
  return options;
}

/// Options of the Nth committed step, clipped by `scale`.
runtime::AdamWOptions adamw(int step, double scale = 1) {
  return {.learning_rate = 1e-2, .step = step, .gradient_scale = scale};
}

class Alone {
 public:
  explicit Alone(Commits commits)
      : architecture_(models::make_gpt(tests::in_precision(tests::small_gpt(1), precision))),
        plan_(tests::plan_of(architecture_, run_of(commits), 0)),
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
  void reduce(int batch, const runtime::AdamWOptions& unclipped) {
    optimizer_->begin(unclipped);
    for (const actors::UnitState& unit : plan_.states->all()) {
      auto* const gradients = reinterpret_cast<float*>(unit.gradients.front().data);
      for (std::size_t e = 0; e < unit.elements; ++e)
        gradients[e] = std::cos(static_cast<float>(static_cast<std::size_t>(batch) * 1000 + e));
    }
    for (std::size_t chunk = 0; chunk < plan_.chunks.chunks.size(); ++chunk) optimizer_->reduced(chunk);
    settle();
  }
  void counts(const runtime::AdamWOptions& options) {
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
  [[nodiscard]] const actors::Optimizer::Answers& answers() const { return optimizer_->answers(); }

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
  constexpr double scales[] = {1, 0.5, 0.25, 1};  // the third step starts with states that were clipped
  for (int step = 1; step <= 4; ++step) {
    CAPTURE(step);
    const auto answer = adamw(step, scales[step - 1]);
    at_once.reduce(step, answer);
    at_once.counts(answer);
    for (Alone* const job : {&waits, &flips}) {
      job->reduce(step, adamw(step));
      job->counts(answer);
      CHECK(job->states() == at_once.states());
      CHECK(job->parameters() == at_once.parameters());
    }
  }
  CHECK(waits.answers().flipped + waits.answers().again == 0);
  CHECK(flips.answers().flipped == 2);
  CHECK(flips.answers().again == 2);
  CHECK(flips.answers().buckets_ahead == flips.answers().buckets);  // all were updated before the decision
}

TEST_CASE("an uncommitted step changes no bit, and does not affect the next one") {
  for (const Commits commits : {Commits::wait, Commits::flip}) {
    CAPTURE(static_cast<int>(commits));
    Alone job(commits), without(commits);
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
