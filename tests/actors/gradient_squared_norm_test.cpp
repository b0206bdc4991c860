// Squared norms of reduced gradients have the same bits for any partition of units, and any location of a bucket.
#include "actors/base/rank_context.hpp"
#include "actors/gradients/gradient_squared_norm.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/families/gpt.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using collectives::Scope;
using runtime::DType;

namespace {

constexpr int rows = 6;

/// Σ gradient² of row 1 by unit, with gradients drawn from `seed`.
std::vector<double> squares_of(const models::Architecture& architecture, const actors::TrainerOptions& options,
                               bool compact, std::uint64_t seed) {
  actors::RankPlan plan = tests::plan_of(architecture, options, 1);
  runtime::Simulation simulation(1, {});
  const auto device = runtime::make_inline_device();
  actors::RankResources rank(simulation.loop(0), simulation.transport(0), *device, plan.memory, plan.tiers);
  plan.states->bind(rank.context().arena);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const DType dtype = options.precision.gradient;
  const std::size_t width = runtime::size_of(dtype);
  for (const actors::UnitState& unit : plan.states->all()) {
    // A rank's part of a unit has the same values under every scope of gradients.
    runtime::with_float_type(dtype, [&](auto type) {
      for (std::size_t x = 0; x < unit.elements; ++x) {
        const auto value = runtime::from_float<decltype(type)>(x < unit.spec->elements() ? normal(random) : 7.0f);
        if (unit.reduced.contains({x, 1})) std::memcpy(unit.gradients.front().at(x), &value, sizeof value);
      }
    });
  }
  actors::GradientSquaredNorm squares(rank.context(), plan, plan.gradients.batch.squares);
  for (const auto& bundle : plan.chunks.bundles) {
    for (const auto& bucket : bundle.buckets) {
      const actors::UnitState& unit = plan.states->all()[bucket.unit];
      const auto [begin, count, runs] = unit.cut.spread(unit.reduced, bucket.index);
      const std::byte* there = unit.gradients.front().at(begin);
      if (!compact) {
        squares.take(bucket, there, false);
        continue;
      }
      std::vector<std::byte> record(count * width);
      for (std::size_t x = 0; x < count; ++x)
        std::memcpy(record.data() + x * width, there + runs.at(x) * width, width);
      squares.take(bucket, record.data(), true);
    }
  }
  std::vector<double> all;
  for (std::size_t u = 0; u < plan.states->all().size(); ++u) all.push_back(squares.of(u));
  return all;
}

}  // namespace

TEST_CASE("squared norms have the same bits for any partition of units, in the unit or bucket by bucket") {
  const models::GptOptions sizes{.layers = 2, .hidden = 64, .heads = 2, .vocab_size = 129, .sequence_length = 8};
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(tests::effort(20, 20, 7)))) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    auto options = tests::small_run({1, rows});
    options.batch_size = rows;
    options.group_size = 3;
    constexpr std::array scopes = {Scope::none, Scope::group, Scope::global};
    options.sharding = {scopes[random() % 3], scopes[random() % 3], scopes[random() % 3]};
    options.precision.gradient = random() % 2 == 0 ? DType::f32 : DType::bf16;
    if (options.precision.gradient == DType::bf16) options.precision.compute = DType::bf16;
    const models::Architecture gpt = models::make_gpt(tests::in_precision(sizes, options.precision));
    options.tiers.bucket_elements = std::size_t{1} << 20;
    const auto at_once = squares_of(gpt, options, false, seed);
    CHECK(std::all_of(at_once.begin(), at_once.end(), [](double square) { return square >= 0; }));
    CHECK(*std::max_element(at_once.begin(), at_once.end()) > 0);
    for (const std::size_t bucket : {512, 1500, 4096}) {
      CAPTURE(bucket);
      options.tiers.bucket_elements = bucket;
      CHECK(squares_of(gpt, options, false, seed) == at_once);
      CHECK(squares_of(gpt, options, true, seed) == at_once);
    }
  }
}
