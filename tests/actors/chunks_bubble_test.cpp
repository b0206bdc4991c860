// Idle time of ranks in virtual time, with one model chunk per rank or several, compared with the formulas of
// interleaved 1F1B and ZB-H1.
#include "actors/predict/predicted_job.hpp"
#include "tests/doubles/stated_layer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::Policy;

namespace {

/// Idle time of a step relative to a stage's computing time. A layer takes a second to go forward and two to
/// go backward, links take none.
double bubble(int stages, int chunks, int microbatches, Policy policy) {
  constexpr int layers_of_stage = 8;
  models::Architecture architecture;
  architecture.positions = 1;
  const int layers = stages * layers_of_stage;
  for (int l = 0; l < layers; ++l)
    architecture.layers.push_back(
        std::make_unique<tests::StatedLayer>(l, l + 1 == layers, [](auto...) { return 1; }));
  actors::TrainerOptions options;
  options.grid = {.g_inter = stages, .g_data = 1};
  options.chunks_per_rank = chunks;
  options.batch_size = microbatches;
  options.policy = policy;
  const runtime::MachineProfile profile = tests::instant_machine();
  const tests::CostsOf costs = tests::StatedLayer::costs();
  const tests::NoSamples samples;
  actors::PredictedJob job(architecture, samples, options, profile, {.costs = &costs}, {});
  return job.run().step_seconds / (3.0 * layers_of_stage * microbatches) - 1;
}

}  // namespace

// Input gradients are sent before weight gradients are computed, so two of a pass's three units count.
TEST_CASE("chunks divide the bubble of 1F1B by their number") {
  for (const auto& [stages, microbatches] : {std::pair{2, 2}, {2, 8}, {3, 6}, {4, 4}, {4, 16}, {8, 16}}) {
    for (const int chunks : {1, 2, 4}) {
      for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
        INFO("stages ", stages, ", microbatches ", microbatches, ", chunks ", chunks, ", policy ",
             actors::to_string(policy));
        const double formula = 2.0 / 3 * (stages - 1) / (chunks * microbatches);
        CHECK(bubble(stages, chunks, microbatches, policy) == doctest::Approx(formula).epsilon(0.01));
      }
    }
  }
}

TEST_CASE(
    "with deferred weight gradients the bubble is a third of a microbatch's compute time, divided by the chunks") {
  for (const auto& [stages, microbatches] : {std::pair{2, 2}, {2, 8}, {3, 6}, {4, 4}, {4, 8}, {4, 16}, {8, 16}}) {
    for (const int chunks : {1, 2, 4}) {
      INFO("stages ", stages, ", microbatches ", microbatches, ", chunks ", chunks);
      const double formula = 1.0 / 3 * (stages - 1) / (chunks * microbatches);
      CHECK(bubble(stages, chunks, microbatches, Policy::zero_bubble) == doctest::Approx(formula).epsilon(0.01));
      if (chunks == 1)
        CHECK(bubble(stages, 1, microbatches, Policy::zb_h1) == doctest::Approx(formula).epsilon(0.01));
    }
  }
}

TEST_CASE("if microbatches do not form full groups, the message-driven schedule beats having no chunks") {
  for (const auto& [stages, microbatches] : {std::pair{2, 9}, {4, 17}, {4, 30}, {8, 33}}) {
    INFO("stages ", stages, ", microbatches ", microbatches);
    CHECK(bubble(stages, 2, microbatches, Policy::message_driven) <
          bubble(stages, 1, microbatches, Policy::message_driven));
  }
}
