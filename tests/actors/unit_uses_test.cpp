// Layers that use their units in ways that GPT-2's do not: none at all, several of one size, one twice, and several
// that are tied across stages. No sharding may change what they train.
#include "tests/actors/same_bits.hpp"

#include "models/ops/matmul.hpp"
#include "runtime/compute_pool.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <utility>

using namespace ranvier;
using actors::Policy;
using models::LayerCall;
using tests::small_gpt;

namespace {

/// output[B, T, C] = input[B, T, C] + Σ weight of a unit [C], in fp32; a unit's weight counts as often as it is
/// named.
class Shift final : public models::Layer {
 public:
  Shift(std::string name, std::size_t channels, const std::vector<std::string>& units)
      : name_(std::move(name)), channels_(channels) {
    for (const std::string& unit : units) {
      units_.push_back({unit, {{unit + ".weight", {channels}, {models::Initializer::Kind::normal, 0.1f}}}});
    }
  }

  const std::string& name() const noexcept override { return name_; }
  std::span<const models::UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int positions) const override { return 1e4 * positions; }
  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }
  models::LayerMemory memory(models::MicrobatchShape shape) const override {
    return {.saved = 0, .deferred = rows(shape) * channels_ * sizeof(float), .workspace = 0};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    std::vector<const float*> weights;
    for (const std::byte* parameters : call.parameters)
      weights.push_back(reinterpret_cast<const float*>(parameters));
    call.stream.launch([x = reinterpret_cast<const float*>(input), y = reinterpret_cast<float*>(output), weights,
                        n = rows(call.shape), channels = channels_](runtime::ComputePool&) {
      for (std::size_t i = 0; i < n * channels; ++i) {
        y[i] = x[i];
        for (const float* weight : weights) y[i] += weight[i % channels];
      }
    });
  }
  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const std::size_t bytes = rows(call.shape) * channels_ * sizeof(float);
    call.stream.launch([=, kept = call.deferred](runtime::ComputePool&) {
      std::memcpy(kept, output_gradient, bytes);
      std::memcpy(input_gradient, output_gradient, bytes);
    });
  }
  void backward_weight(const LayerCall& call, const std::byte*) override {
    for (std::byte* gradient : call.gradients) {
      models::column_sums(call.stream, gradient, runtime::DType::f32, call.deferred, runtime::DType::f32,
                          rows(call.shape), channels_, call.accumulate);
    }
  }

 private:
  static std::size_t rows(models::MicrobatchShape shape) {
    return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  }

  std::string name_;
  std::size_t channels_;
  std::vector<models::UnitSpec> units_;
};

/// A GPT with a Shift in front of each of its blocks and of its head, of these units.
models::Architecture shifted_gpt(const std::vector<std::vector<std::string>>& units) {
  const models::GptOptions gpt = small_gpt(static_cast<int>(units.size()) - 1);
  models::Architecture architecture = models::make_gpt(gpt);
  for (std::size_t s = 0; s < units.size(); ++s) {
    architecture.layers.insert(
        architecture.layers.begin() + static_cast<std::ptrdiff_t>(2 * s + 1),
        std::make_unique<Shift>("shift." + std::to_string(s), static_cast<std::size_t>(gpt.hidden), units[s]));
  }
  return architecture;
}

actors::TrainerOptions run_of(runtime::GridShape grid) {
  actors::TrainerOptions options;
  options.grid = grid;
  options.batch_size = 12;
  options.microbatch_size = 2;
  options.steps = 3;
  options.seed = 11;
  options.learning_rate = {.peak = 1e-2, .steps = 3};
  return options;
}

/// The same bits on one stage and on several, gathering ahead or not.
void check_every_grid(const models::Architecture& architecture) {
  const tests::RandomTokens tokens(8, 37);
  for (const char* name : {"ddp", "zero2", "zero3", "mics", "paro-iig", "zero++", "GNI"}) {
    auto options = run_of({1, 2});
    options.sharding = collectives::parse_sharding(name);
    options.group_size = 2;
    const auto reference = tests::run_simulated(architecture, tokens, options, 1);
    for (const int g_inter : {1, 2, 3}) {
      for (const auto& [policy, prefetch, reuse] : {std::tuple{Policy::message_driven, 2, true},
                                                    {Policy::one_f_one_b, 0, false},
                                                    {Policy::gpipe, 1, true}}) {
        CAPTURE(name);
        CAPTURE(g_inter);
        CAPTURE(actors::to_string(policy));
        CAPTURE(reuse);
        options.grid.g_inter = g_inter;
        options.policy = policy;
        options.prefetch = prefetch;
        options.reuse = reuse;
        for (const std::uint64_t seed : {2, 3, 4}) {
          check_same_bits(reference, tests::run_simulated(architecture, tokens, options, seed));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("layers without units, and with several of one size, train the same under every sharding") {
  check_every_grid(shifted_gpt({{}, {"a", "b"}, {}, {"c", "d", "e"}, {}}));
}

TEST_CASE("a layer may use a unit twice") { check_every_grid(shifted_gpt({{}, {"a", "a"}, {}, {}})); }

TEST_CASE("several units may be tied across the same stages") {
  check_every_grid(shifted_gpt({{"a", "b", "c"}, {}, {}, {"c", "a", "b"}}));
}

TEST_CASE("a unit of three layers is refused, as its gradients have no fixed order of sums") {
  const auto architecture = shifted_gpt({{"a"}, {"a"}, {"a"}});
  const tests::RandomTokens tokens(8, 37);
  for (const int g_inter : {1, 2, 3}) {
    CHECK_THROWS_AS(tests::run_simulated(architecture, tokens, run_of({g_inter, 2}), 1), Error);
  }
}
