// A model without arithmetic for jobs in virtual time: layers of stated durations, and samples without content.
#pragma once

#include "models/core/layer.hpp"
#include "models/core/sample_source.hpp"
#include "tests/doubles/virtual_time.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace ranvier::tests {

/// A layer that computes nothing: each call is a product of as many FLOPs as it takes seconds.
class StatedLayer final : public models::Layer {
 public:
  enum Direction { forwards, backwards, weights };
  using Seconds = std::function<double(Direction, const models::LayerCall&)>;

  StatedLayer(int number, bool last, Seconds seconds)
      : Layer("layer " + std::to_string(number)), last_(last), seconds_(std::move(seconds)) {
    set_units({{.name = name(), .parameters = {{.name = name(), .shape = {1}}}}});
  }

  /// The time of such products; all other work takes none.
  static CostsOf costs() {
    return CostsOf([](const runtime::WorkCost& cost) {
      return cost.kind == runtime::WorkKind::product ? 1e9 * cost.flops : 0;
    });
  }

  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int) const override { return last_ ? 0 : 1; }
  models::LayerMemory memory(models::MicrobatchShape) const override { return {.deferred = 1}; }
  void forward(const models::LayerCall& call, const std::byte*, std::byte*) override { compute(forwards, call); }
  void backward_input(const models::LayerCall& call, const std::byte*, const std::byte*, std::byte*) override {
    compute(backwards, call);
  }
  void backward_weight(const models::LayerCall& call, const std::byte*) override { compute(weights, call); }

 private:
  void compute(Direction direction, const models::LayerCall& call) const {
    call.stream.launch({.kind = runtime::WorkKind::product, .flops = seconds_(direction, call)},
                       [](runtime::ComputePool&) {});
  }

  bool last_;
  Seconds seconds_;
};

/// Samples of `length` tokens without content: simulated ranks do not read them.
class NoSamples final : public models::TokenSamples {
 public:
  explicit NoSamples(int length = 1) : TokenSamples(length) {}
  std::int64_t samples() const override { return std::int64_t{1} << 40; }
  void read_input(std::int64_t, std::byte*) const override {}
  void read_target(std::int64_t, std::byte*) const override {}
};

}  // namespace ranvier::tests
