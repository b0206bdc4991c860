// All that one rank computes of a model: one slice of its layers, or several that lie apart, as where stages take
// turns ("interleaved" pipelines, Narayanan et al. 2021). Each slice is a Stage of its own, with its slots, inputs and
// outputs; what holds nothing between passes they share. The layers, units and uses of all slices are numbered here
// from the front to the back, for those who keep the rank's part of the model whatever slices it has.
#pragma once

#include "models/stage.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::models {

class StageSlices {
 public:
  using PassStep = StageLayout::PassStep;
  using UnitUse = StageLayout::UnitUse;  ///< with numbers of the rank's layers, units and uses

  /// `options` of each slice, from the front, alike in capacity and precision; who shares what is worked out here. Adds
  /// what they need to `plan`. The architecture outlives them.
  StageSlices(const Architecture& architecture, std::vector<StageOptions> options, runtime::MemoryPlan& plan);

  /// As Stage::bind().
  void bind(const runtime::Arena& arena);

  [[nodiscard]] std::size_t size() const noexcept { return slices_.size(); }
  [[nodiscard]] Stage& slice(std::size_t slice) { return *slices_[slice]; }
  [[nodiscard]] const Stage& slice(std::size_t slice) const { return *slices_[slice]; }

  /// Whether the model's first, last layer is among them.
  [[nodiscard]] bool first() const noexcept { return slices_.front()->first(); }
  [[nodiscard]] bool last() const noexcept { return slices_.back()->last(); }
  [[nodiscard]] const MicrobatchShape& capacity() const noexcept { return slices_.front()->capacity(); }
  [[nodiscard]] const Precision& precision() const noexcept { return slices_.front()->precision(); }
  [[nodiscard]] const SampleBytes& sample() const noexcept { return slices_.front()->sample(); }
  [[nodiscard]] std::size_t vocabulary() const noexcept { return slices_.back()->vocabulary(); }
  [[nodiscard]] bool defers() const noexcept;

  [[nodiscard]] std::size_t layers() const noexcept { return layers_.size(); }
  [[nodiscard]] std::size_t layer_of(const PassStep& step) const { return first_layers_[step.slice] + step.layer; }
  [[nodiscard]] const StageLayout::LayerMemoryMap& layer(std::size_t layer) const;

  /// The units of all layers, each once, in layer order.
  [[nodiscard]] const std::vector<UnitSpec>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<UnitUse>& uses() const noexcept { return uses_; }
  /// The uses of a layer, by index in layer.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(std::size_t layer) const { return layers_[layer].uses; }
  /// Those of them that belong to a step.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(const PassStep& step) const {
    return layers_[layer_of(step)].parts[static_cast<std::size_t>(step.kind)][step.part];
  }
  /// As StageLayout::units_of_parts().
  [[nodiscard]] std::vector<std::vector<std::size_t>> units_of_parts(PassStep::Kind kind) const;

 private:
  struct LayerUses {
    std::size_t slice = 0;
    std::vector<std::size_t> uses;                               // by index in layer
    std::array<std::vector<std::vector<std::size_t>>, 3> parts;  // by kind of step: uses
  };

  void number_uses();

  std::vector<std::unique_ptr<Stage>> slices_;
  std::vector<std::size_t> first_layers_;  // by slice
  std::vector<LayerUses> layers_;
  std::vector<UnitSpec> units_;
  std::vector<UnitUse> uses_;
};

}  // namespace ranvier::models
