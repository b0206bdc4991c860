// Layers that use units in other ways than GPT-2's layers: none at all, several of one size, one twice, several tied
// across stages, and calls in phases with units each. Sharding must not change their training result.
#include "tests/actors/same_bits.hpp"

#include "models/ops/matmul.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using models::LayerCall;

namespace {

float value_of(const std::byte* array, runtime::DType dtype, std::size_t i) {
  return runtime::with_float_type(
      dtype, [&](auto type) { return runtime::to_float(reinterpret_cast<const decltype(type)*>(array)[i]); });
}

void set_value(std::byte* array, runtime::DType dtype, std::size_t i, float value) {
  runtime::with_float_type(dtype, [&](auto type) {
    reinterpret_cast<decltype(type)*>(array)[i] = runtime::from_float<decltype(type)>(value);
  });
}

/// From and to C channels, with weights [C] of the named units, which are drawn with this deviation.
class ChannelLayer : public models::Layer {
 public:
  ChannelLayer(std::string name, const models::GptOptions& gpt, const std::vector<std::string>& units,
               float deviation)
      : Layer(std::move(name)), channels_(static_cast<std::size_t>(gpt.hidden)), precision_(gpt.precision) {
    std::vector<models::UnitSpec> all;
    for (const std::string& unit : units)
      all.push_back({unit, {{unit + ".weight", {channels_}, {models::Initializer::Kind::normal, deviation}}}});
    set_units(std::move(all));
  }

  double flops_per_sample(int positions) const final { return 1e4 * positions; }
  std::size_t output_elements(int positions) const final { return static_cast<std::size_t>(positions) * channels_; }

 protected:
  static std::size_t rows(models::MicrobatchShape shape) {
    return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  }
  std::size_t elements(models::MicrobatchShape shape) const { return rows(shape) * channels_; }
  std::size_t bytes(models::MicrobatchShape shape) const {
    return elements(shape) * runtime::size_of(precision_.compute);
  }

  std::size_t channels_;
  models::Precision precision_;
};

/// output[B, T, C] = input[B, T, C] + Σ weight of a unit [C]; a unit counts as often as it is named.
class Shift final : public ChannelLayer {
 public:
  Shift(std::string name, const models::GptOptions& gpt, const std::vector<std::string>& units)
      : ChannelLayer(std::move(name), gpt, units, 0.1f) {}

  models::LayerMemory memory(models::MicrobatchShape shape) const override {
    return {.saved = 0, .deferred = bytes(shape), .workspace = 0};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    call.stream.launch([=, weights = std::vector(call.parameters.begin(), call.parameters.end()),
                        n = elements(call.shape), channels = channels_,
                        dtype = precision_.compute](runtime::ComputePool&) {
      for (std::size_t i = 0; i < n; ++i) {
        float sum = value_of(input, dtype, i);
        for (const std::byte* const weight : weights) sum += value_of(weight, dtype, i % channels);
        set_value(output, dtype, i, sum);
      }
    });
  }
  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    call.stream.launch([=, kept = call.deferred, size = bytes(call.shape)](runtime::ComputePool&) {
      std::memcpy(kept, output_gradient, size);
      std::memcpy(input_gradient, output_gradient, size);
    });
  }
  void backward_weight(const LayerCall& call, const std::byte*) override {
    for (std::byte* gradient : call.gradients) {
      models::column_sums(call.stream, gradient, precision_.gradient, call.deferred, precision_.compute,
                          rows(call.shape), channels_, call.accumulate);
    }
  }
};

/// output[B, T, C] = input[B, T, C] · Σ (u + 1) weight of unit u [C], summed in float: at once, or in phases with other
/// units in each call.
class Scale final : public ChannelLayer {
 public:
  Scale(std::string name, const models::GptOptions& gpt, const std::vector<std::string>& units, bool in_parts)
      : ChannelLayer(std::move(name), gpt, units, 0.5f) {
    if (!in_parts) {
      parts_ = Layer::parts();
      return;
    }
    std::vector<std::size_t> all(units.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto front = all.begin() + 1, back = all.end() - 1;
    parts_ = {.forward = {{0}, {front, all.end()}, {}},
              .backward_input = {{}, {all.begin(), back}, {all.back()}},
              .backward_weight = {{all.back()}, {}, {all.begin(), back}}};
  }

  models::LayerPhases parts() const override { return parts_; }
  models::LayerMemory memory(models::MicrobatchShape shape) const override {
    return {.saved = 0, .deferred = bytes(shape), .workspace = elements(shape) * sizeof(float)};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    add_products(call, parts_.forward, input, output);
  }
  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    add_products(call, parts_.backward_input, output_gradient, input_gradient);
    if (call.part > 0) return;
    call.stream.launch([=, to = call.deferred, size = bytes(call.shape)](runtime::ComputePool&) {
      std::memcpy(to, output_gradient, size);
    });
  }
  void backward_weight(const LayerCall& call, const std::byte* input) override {
    check_units(call.gradients, parts_.backward_weight[call.part]);
    for (const std::size_t unit : parts_.backward_weight[call.part]) {
      call.stream.launch([=, dy = call.deferred, sums = call.gradients[unit], n = elements(call.shape),
                          channels = channels_, factor = static_cast<float>(unit + 1), precision = precision_,
                          accumulate = call.accumulate](runtime::ComputePool&) {
        for (std::size_t c = 0; c < channels; ++c) {
          float sum = accumulate ? value_of(sums, precision.gradient, c) : 0;
          for (std::size_t i = c; i < n; i += channels)
            sum += factor * value_of(input, precision.compute, i) * value_of(dy, precision.compute, i);
          set_value(sums, precision.gradient, c, sum);
        }
      });
    }
  }

 private:
  template <class Pointers>
  static void check_units(const Pointers& pointers, const std::vector<std::size_t>& units) {
    for (std::size_t unit = 0; unit < pointers.size(); ++unit) {
      const bool named = std::find(units.begin(), units.end(), unit) != units.end();
      expect((pointers[unit] != nullptr) == named, "wrong pointer of a phase that {} unit {}",
             named ? "names" : "omits", unit);
    }
  }

  /// The last phase takes the sum from the workspace.
  void add_products(const LayerCall& call, const models::LayerPhases::Units& parts, const std::byte* input,
                    std::byte* output) const {
    check_units(call.parameters, parts[call.part]);
    const std::size_t n = elements(call.shape);
    auto* const sum = reinterpret_cast<float*>(call.workspace);
    if (call.part == 0) call.stream.launch([=](runtime::ComputePool&) { std::fill_n(sum, n, 0.0f); });
    for (const std::size_t unit : parts[call.part]) {
      call.stream.launch([=, weight = call.parameters[unit], channels = channels_, dtype = precision_.compute,
                          factor = static_cast<float>(unit + 1)](runtime::ComputePool&) {
        for (std::size_t i = 0; i < n; ++i)
          sum[i] += factor * value_of(input, dtype, i) * value_of(weight, dtype, i % channels);
      });
    }
    if (call.part + 1 == parts.size()) {
      call.stream.launch([=, dtype = precision_.compute](runtime::ComputePool&) {
        for (std::size_t i = 0; i < n; ++i) set_value(output, dtype, i, sum[i]);
      });
    }
  }

  models::LayerPhases parts_;
};

using MakeLayer = std::function<std::unique_ptr<models::Layer>(std::string name, const models::GptOptions& gpt,
                                                               const std::vector<std::string>& units)>;

/// A GPT with such a layer in front of each block and of the head, with these units.
models::Architecture gpt_with(const std::vector<std::vector<std::string>>& units,
                              const models::Precision& precision, const MakeLayer& make) {
  const auto gpt = in_precision(small_gpt(static_cast<int>(units.size()) - 1), precision);
  models::Architecture architecture = models::make_gpt(gpt);
  for (std::size_t s = 0; s < units.size(); ++s) {
    architecture.layers.insert(architecture.layers.begin() + static_cast<std::ptrdiff_t>(2 * s + 1),
                               make("between." + std::to_string(s), gpt, units[s]));
  }
  return architecture;
}

models::Architecture shifted_gpt(const std::vector<std::vector<std::string>>& units,
                                 const models::Precision& precision) {
  return gpt_with(units, precision,
                  [](std::string name, const models::GptOptions& gpt, const std::vector<std::string>& of_layer) {
                    return std::make_unique<Shift>(std::move(name), gpt, of_layer);
                  });
}

models::Architecture scaled_gpt(const std::vector<std::vector<std::string>>& units,
                                const models::Precision& precision, bool in_parts) {
  return gpt_with(units, precision,
                  [&](std::string name, const models::GptOptions& gpt,
                      const std::vector<std::string>& of_layer) -> std::unique_ptr<models::Layer> {
                    if (of_layer.empty()) return std::make_unique<Shift>(std::move(name), gpt, of_layer);
                    return std::make_unique<Scale>(std::move(name), gpt, of_layer, in_parts);
                  });
}

/// Units of the layers in front of each block and of the head.
using Units = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE("layers may use units in any way, under every sharding") {
  std::uint64_t first = 0;
  for (const Units& units : {Units{{}, {"a", "b"}, {}, {"c", "d", "e"}, {}},  // none, and several of one size
                             // more than one message can request
                             Units{{}, {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}, {}},
                             Units{{}, {"a", "a"}, {}, {}},                       // one twice
                             Units{{"a", "b", "c"}, {}, {}, {"c", "a", "b"}}}) {  // tied across the same stages
    CAPTURE(units.front().size());
    const auto draw_shifted = [&](Draw& draw) -> DrawnModel {
      return {shifted_gpt(units, draw_precision(draw)), draw_tokens(37, draw)};
    };
    check_any_placement(draw_shifted, 16, 200, 5, first);
    first += 100;
  }
}

TEST_CASE("layers whose calls are split into phases, with other units each, give the result of a single call") {
  std::uint64_t first = 400;
  for (const Units& units : {Units{{"a", "b", "c"}, {}, {"d"}, {"e", "f"}, {}},
                             Units{{"a", "b", "c"}, {}, {}, {"c", "a", "b"}}}) {  // tied across stages
    CAPTURE(units.size());
    const auto draw_scaled = [&](Draw& draw) -> DrawnModel {
      const models::Precision precision = draw_precision(draw);
      return {scaled_gpt(units, precision, true), draw_tokens(37, draw), false,
              std::make_unique<models::Architecture>(scaled_gpt(units, precision, false))};
    };
    check_any_placement(draw_scaled, 24, 200, 5, first);
    first += 100;
  }
}

TEST_CASE("a unit of three layers is refused, because its gradients have no fixed order of sums") {
  const auto architecture = shifted_gpt({{"a"}, {"a"}, {"a"}}, {});
  const RandomTokens tokens(8, 37);
  for (const int g_inter : {1, 2, 3}) {
    CHECK_THROWS_AS(run_simulated(architecture, tokens, small_run({g_inter, 2}), 1), Error);
  }
}
