// Whole jobs under every sharding: what a rank holds must not change what is trained.
#include "tests/actors/simulated_job.hpp"
#include "tests/seeds.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace ranvier;
using actors::Policy;
using collectives::Scope;
using collectives::Sharding;
using tests::run_simulated;
using tests::small_gpt;

namespace {

std::vector<Sharding> all_shardings() {
  constexpr Scope scopes[] = {Scope::none, Scope::group, Scope::global};
  std::vector<Sharding> all;
  for (Scope parameters : scopes) {
    for (Scope gradients : scopes) {
      for (Scope optimizer : scopes) all.push_back({parameters, gradients, optimizer});
    }
  }
  all.push_back(collectives::parse_sharding("zero++"));
  return all;
}

actors::TrainerOptions run_of(int g_inter, int g_data, std::int64_t steps) {
  actors::TrainerOptions options;
  options.grid = {g_inter, g_data};
  options.batch_size = 12;
  options.microbatch_size = 2;
  options.steps = steps;
  options.seed = 11;
  options.learning_rate = {.peak = 1e-2, .steps = steps};
  options.clip = 0.5;  // below the norm of most steps
  return options;
}

/// 1e-6 in loss and 1e-4 in each tensor's norm. The bias of the keys has no gradient but rounding, which AdamW blows up.
void check_close(const tests::JobResult& a, const tests::JobResult& b) {
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

TEST_CASE("every sharding trains what ddp trains, on every grid and with groups of any size") {
  struct Shape {
    int g_inter, g_data;
  };
  for (const Shape shape : {Shape{1, 4}, Shape{2, 2}, Shape{4, 1}, Shape{1, 6}, Shape{2, 3}, Shape{3, 2}}) {
    auto options = run_of(shape.g_inter, shape.g_data, 3);
    const auto ddp = run_simulated(small_gpt(), options, 1);
    for (const int group_size : {1, 2, 3, 4}) {
      if (shape.g_data % group_size != 0) continue;
      for (const Sharding& sharding : all_shardings()) {
        CAPTURE(shape.g_inter);
        CAPTURE(shape.g_data);
        CAPTURE(group_size);
        CAPTURE(to_string(sharding));
        options.sharding = sharding;
        options.group_size = group_size;
        check_close(run_simulated(small_gpt(), options, 2), ddp);
      }
    }
  }
}
