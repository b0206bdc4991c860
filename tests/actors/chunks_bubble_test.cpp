// Idle time of ranks in virtual time, with one model chunk per rank or several, compared with the formulas of
// interleaved 1F1B and ZB-H1.
#include "actors/predict/predicted_job.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

using namespace ranvier;
using actors::Policy;

namespace {

/// A layer whose forward pass takes a second, and whose backward pass takes two.
class Even final : public models::Layer {
 public:
  Even(int number, bool last)
      : name_("layer " + std::to_string(number)),
        units_{{.name = name_, .parameters = {{.name = name_, .shape = {1}}}}},
        last_(last) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const models::UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int) const override { return last_ ? 0 : 1; }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {.deferred = 1}; }
  void forward(const models::LayerCall& call, const std::byte*, std::byte*) override { compute(call); }
  void backward_input(const models::LayerCall& call, const std::byte*, const std::byte*, std::byte*) override {
    compute(call);
  }
  void backward_weight(const models::LayerCall& call, const std::byte*) override { compute(call); }

 private:
  static void compute(const models::LayerCall& call) {
    call.stream.launch({.kind = runtime::WorkKind::product, .flops = 1}, [](runtime::ComputePool&) {});
  }

  std::string name_;
  std::vector<models::UnitSpec> units_;
  bool last_;
};

class Stated final : public runtime::CostModel {
 public:
  runtime::Duration duration(const runtime::WorkCost& cost) const override {
    return std::chrono::seconds(cost.kind == runtime::WorkKind::product ? static_cast<int>(cost.flops) : 0);
  }
};

class NoSamples final : public models::SampleSource {
 public:
  std::int64_t samples() const override { return std::int64_t{1} << 40; }
  std::size_t input_bytes() const override { return sizeof(std::int32_t); }
  std::size_t target_bytes() const override { return sizeof(std::int32_t); }
  std::int64_t losses_per_sample() const override { return 1; }
  void read_inputs(std::int64_t, int, std::byte*) const override {}
  void read_targets(std::int64_t, int, std::byte*) const override {}
};

/// Idle time of a step relative to a stage's compute time. Links take no time.
double bubble(int stages, int chunks, int microbatches, Policy policy) {
  constexpr int layers_of_stage = 8;
  models::Architecture architecture;
  architecture.positions = 1;
  const int layers = stages * layers_of_stage;
  for (int l = 0; l < layers; ++l) architecture.layers.push_back(std::make_unique<Even>(l, l + 1 == layers));
  actors::TrainerOptions options;
  options.grid = {.g_inter = stages, .g_data = 1};
  options.chunks_per_rank = chunks;
  options.batch_size = microbatches;
  options.policy = policy;
  constexpr runtime::Link no_time{.latency_seconds = 0, .bytes_per_second = 1e18, .node_bytes_per_second = 0};
  runtime::MachineProfile profile;
  profile.name = "stated times";
  profile.cores = 0;
  profile.links = {no_time, no_time};
  const Stated costs;
  const NoSamples samples;
  actors::PredictedJob job(architecture, samples, options, profile, {costs, costs}, {});
  return job.run().step_seconds / (3.0 * layers_of_stage * microbatches) - 1;
}

}  // namespace

// Input gradients are sent before weight gradients are computed, so two of a pass's three units count.
TEST_CASE("chunks divide the bubble of 1F1B by their number") {
  for (const auto& [stages, microbatches] : {std::pair{2, 2}, {2, 8}, {3, 6}, {4, 4}, {4, 16}, {8, 16}}) {
    for (const int chunks : {1, 2, 4}) {
      for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
        CAPTURE(stages);
        CAPTURE(microbatches);
        CAPTURE(chunks);
        CAPTURE(actors::to_string(policy));
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
      CAPTURE(stages);
      CAPTURE(microbatches);
      CAPTURE(chunks);
      const double formula = 1.0 / 3 * (stages - 1) / (chunks * microbatches);
      CHECK(bubble(stages, chunks, microbatches, Policy::zero_bubble) == doctest::Approx(formula).epsilon(0.01));
      if (chunks == 1)
        CHECK(bubble(stages, 1, microbatches, Policy::zb_h1) == doctest::Approx(formula).epsilon(0.01));
    }
  }
}

TEST_CASE("if microbatches do not form full groups, the message-driven schedule beats having no chunks") {
  for (const auto& [stages, microbatches] : {std::pair{2, 9}, {4, 17}, {4, 30}, {8, 33}}) {
    CAPTURE(stages);
    CAPTURE(microbatches);
    CHECK(bubble(stages, 2, microbatches, Policy::message_driven) <
          bubble(stages, 1, microbatches, Policy::message_driven));
  }
}
