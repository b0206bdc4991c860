// Complete jobs under every sharding: the sharding must not change the training result.
#include "tests/actors/same_bits.hpp"
#include "tests/collectives/all_shardings.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using collectives::Scope;
using collectives::Sharding;

namespace {

actors::TrainerOptions run_of(int g_inter, int g_data, std::int64_t steps) {
  auto options = small_run({g_inter, g_data});
  options.batch_size = 12;
  options.steps = options.learning_rate.steps = steps;
  options.clip = 0.5;  // below the norm of most steps
  return options;
}

/// 1e-6 in loss and 1e-4 in each tensor's norm. The gradient of keys' biases is only rounding, which AdamW amplifies.
void check_close(const JobResult& a, const JobResult& b) {
  REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    CHECK(a.steps[s].loss == doctest::Approx(b.steps[s].loss).epsilon(1e-6));
    CHECK(a.steps[s].gradient_norm == doctest::Approx(b.steps[s].gradient_norm).epsilon(1e-4));
    CHECK(a.steps[s].skipped == b.steps[s].skipped);
  }
  const auto architecture = models::make_gpt(small_gpt());
  for (const models::UnitSpec& unit : architecture.units()) {
    const auto& left = a.weights.at(unit.name);
    const auto& right = b.weights.at(unit.name);
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      const bool keys = unit.parameters[p].name.find("c_attn.bias") != std::string::npos;
      const std::size_t third = unit.parameters[p].elements() / 3;
      double difference = 0, norm = 0;
      for (std::size_t e = 0; e < unit.parameters[p].elements(); ++e) {
        if (keys && e >= third && e < 2 * third) continue;
        const double l = left[unit.offset(p) + e], r = right[unit.offset(p) + e];
        difference += (l - r) * (l - r);
        norm += r * r;
      }
      CAPTURE(unit.parameters[p].name);
      CHECK(std::sqrt(difference) <= 1e-4 * std::sqrt(norm) + 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("every sharding gives the result of ddp, with any groups, nodes, algorithms and dropout, on every grid") {
  std::map<std::tuple<int, int, float>, JobResult> references;
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(280, 2000, 14)))) {
    CAPTURE(seed);
    Draw draw(seed);
    auto gpt = small_gpt();
    gpt.dropout = draw.of(0.0f, 0.2f);
    const auto [g_inter, g_data] = draw.of(std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1}, std::pair{1, 6},
                                           std::pair{2, 3}, std::pair{3, 2});
    auto options = run_of(g_inter, g_data, effort(4, 20, 2));
    const std::tuple key{g_inter, g_data, gpt.dropout};
    if (!references.contains(key)) references.emplace(key, run_simulated(gpt, options, 1));
    const auto every = all_shardings();
    options.sharding = every[11 * seed % every.size()];  // few seeds spread over all of them
    draw_groups(options, draw);
    if (draw(0, 1) == 0) {  // nodes of equal size
      const int ranks_per_node = draw.of(2, 3);
      for (int r = 0; r < options.grid.ranks(); ++r)
        options.node_of[static_cast<std::size_t>(r)] = r / ranks_per_node;
    }
    const auto name = [&draw](collectives::Collective collective) {
      const auto all = collectives::algorithms(collective);
      return std::string(all[static_cast<std::size_t>(draw(0, static_cast<int>(all.size()) - 1))].name);
    };
    if (draw(0, 1) == 0)
      options.algorithms = {name(collectives::Collective::all_gather),
                            name(collectives::Collective::reduce_scatter),
                            name(collectives::Collective::all_reduce)};
    INFO("sharding ", to_string(options.sharding), ", g_inter ", g_inter, ", g_data ", g_data, ", group_size ",
         options.group_size, ", all_gather ", options.algorithms.all_gather, ", reduce_scatter ",
         options.algorithms.reduce_scatter, ", all_reduce ", options.algorithms.all_reduce);
    check_close(run_simulated(gpt, options, 2), references.at(key));
  }
}

TEST_CASE("twenty clipped steps under every named sharding give the result of ddp") {
  tests::Share share(1, 2);
  for (const auto& [g_inter, g_data] : {std::pair{1, 4}, {2, 2}, {1, 6}}) {
    auto options = run_of(g_inter, g_data, effort(20, 20, 4));
    options.group_size = 2;
    options.node_of.resize(static_cast<std::size_t>(options.grid.ranks()));
    for (std::size_t r = 0; r < options.node_of.size(); ++r) options.node_of[r] = static_cast<int>(r / 2);
    const auto ddp = run_simulated(small_gpt(), options, 1);
    for (const auto& [name, sharding] : collectives::named_shardings()) {
      if (!share.takes()) continue;
      INFO("name ", name, ", g_data ", g_data);
      options.sharding = sharding;
      check_close(run_simulated(small_gpt(), options, 2), ddp);
    }
  }
}

TEST_CASE("the location of parameters does not change any bit") {
  auto options = run_of(1, 4, 3);
  options.eval_every = 2;
  options.eval_samples = 2 * options.batch_size;
  options.group_size = 2;
  std::map<std::pair<Scope, Scope>, JobResult> whole;
  for (const Sharding& sharding : all_shardings()) {
    CAPTURE(to_string(sharding));
    options.sharding = sharding;
    const auto result = run_simulated(small_gpt(), options, 3);
    const auto& [known, is_first] = whole.emplace(std::pair{sharding.gradients, sharding.optimizer}, result);
    if (is_first) continue;  // parameters are complete
    // Gradients are reduced by groups or across the complete column, which changes the order of their sums.
    const bool by_groups = sharding.gradients == Scope::group || sharding.optimizer == Scope::group;
    if (sharding.parameters == Scope::group && !by_groups) continue;
    check_same_bits(known->second, result);
  }
}

TEST_CASE("one reduction of gradients gives the same bits, regardless of which ranks keep the sums") {
  auto options = run_of(1, 4, 3);
  options.microbatch_size = 3;  // a row's part of the batch
  options.algorithms = {"ring", "ring", "ring"};
  options.group_size = 4;
  options.clip = 0;  // the norm is a sum over pieces
  const auto train = [&](const char* name) {
    options.sharding = collectives::parse_sharding(name);
    return run_simulated(small_gpt(), options, 2);
  };
  const auto ddp = train("ddp");
  CHECK(train("zero1").weights == ddp.weights);
  CHECK(train("GNG").weights == ddp.weights);
  // The two uses of the tied embedding are summed after their reduction, not before: one step, other units.
  options.steps = 1;
  const auto one = train("ddp");
  for (const char* name : {"zero2", "zero3", "NGN", "GGN"}) {
    CAPTURE(name);
    const auto result = train(name);
    for (const auto& [unit, weights] : one.weights) {
      CAPTURE(unit);
      if (unit != "wte") CHECK(result.weights.at(unit) == weights);
    }
  }
}

TEST_CASE("an fp16 overflow on any rank makes all ranks skip the step and halve the scale, under every sharding") {
  tests::Share share(1, 6);
  auto gpt = small_gpt();
  gpt.precision = {runtime::DType::f16, runtime::DType::f32};
  for (const auto& [g_inter, g_data] : {std::pair{1, 4}, {2, 2}}) {
    auto options = run_of(g_inter, g_data, 4);
    options.precision = gpt.precision;
    options.group_size = 2;
    options.loss_scale = {.scale = 1024, .dynamic = true, .growth_interval = 2};
    const auto good = run_simulated(gpt, options, 2);
    REQUIRE(!good.steps[1].skipped);
    CHECK(good.steps[2].loss_scale == 2048);  // doubled after two good steps
    int faulty = 0;
    for (const Sharding& sharding : all_shardings()) {
      faulty = (faulty + 1) % 4;
      if (!share.takes()) continue;
      INFO("sharding ", to_string(sharding), ", faulty ", faulty);
      options.sharding = sharding;
      options.fault = overflow(faulty, 2);
      // run_simulated checks that all ranks agree.
      const auto result = run_simulated(gpt, options, 2);
      REQUIRE(result.steps.size() == 4);
      CHECK(!result.steps[0].skipped);
      CHECK(result.steps[1].skipped);
      CHECK(!result.steps[2].skipped);
      CHECK(result.steps[2].loss_scale == 512);
      CHECK(result.steps[2].skips == 1);
      // The same as without the uncommitted step.
      CHECK(result.steps[3].skips == 1);
      CHECK(std::isfinite(result.steps[3].loss));
    }
  }
}
