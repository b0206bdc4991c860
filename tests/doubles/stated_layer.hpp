// A model without arithmetic for jobs in virtual time: layers of stated durations, and samples without content.
#pragma once

#include "models/core/layer.hpp"
#include "models/core/sample_source.hpp"
#include "tests/doubles/virtual_time.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// A layer that computes nothing: each call is a product of as many FLOPs as it takes seconds.
class StatedLayer final : public models::Layer {
 public:
  enum Direction { forwards, backwards, weights };
  using Seconds = std::function<double(Direction, const models::LayerCall&)>;

  StatedLayer(int number, bool last, Seconds seconds)
      : name_("layer " + std::to_string(number)),
        units_{{.name = name_, .parameters = {{.name = name_, .shape = {1}}}}},
        last_(last),
        seconds_(std::move(seconds)) {}

  /// The time of such products; all other work takes none.
  static CostsOf costs() {
    return CostsOf([](const runtime::WorkCost& cost) {
      return cost.kind == runtime::WorkKind::product ? 1e9 * cost.flops : 0;
    });
  }

  const std::string& name() const noexcept override { return name_; }
  std::span<const models::UnitSpec> units() const noexcept override { return units_; }
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

  std::string name_;
  std::vector<models::UnitSpec> units_;
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
