// All model chunks (slices) of a rank: one, or several in an interleaved pipeline (Narayanan et al. 2021). Each slice
// is a Stage with its own slots, inputs and outputs. Slices share the arrays that are empty between passes. Layers,
// units and uses are numbered consecutively over all slices, from the front.
#pragma once

#include "models/core/stage.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace ranvier::models {

class StageSlices {
 public:
  using PassStep = StageLayout::PassStep;

  /// Use of a unit by a layer; tied units have several. Uses are numbered in layer order.
  struct UnitUse {
    std::size_t layer = 0;
    std::size_t index_in_layer = 0;  ///< in Layer::units()
    std::size_t unit = 0;            ///< in units()
  };

  /// `options` per slice, from the front, with equal capacity and precision; the constructor sets Scratch. Adds the
  /// slices' memory to `plan`. The architecture must outlive them.
  StageSlices(const Architecture& architecture, std::vector<StageOptions> options, runtime::MemoryPlan& plan);

  /// Calls Stage::bind() of each slice.
  void bind(const runtime::Arena& arena);

  [[nodiscard]] std::size_t size() const noexcept { return slices_.size(); }
  [[nodiscard]] Stage& slice(std::size_t slice) { return *slices_[slice]; }
  [[nodiscard]] const Stage& slice(std::size_t slice) const { return *slices_[slice]; }

  /// Whether the rank has the model's first or last layer.
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

  /// Units of all layers, each once, in layer order.
  [[nodiscard]] const std::vector<UnitSpec>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<UnitUse>& uses() const noexcept { return uses_; }
  /// Uses of a step.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(const PassStep& step) const {
    return layers_[layer_of(step)].parts[static_cast<std::size_t>(step.kind)][step.part];
  }
  /// Units of each phase of the calls of this kind, in layer order.
  [[nodiscard]] std::vector<std::vector<std::size_t>> units_of_parts(PassStep::Kind kind) const;

 private:
  struct LayerUses {
    std::size_t slice = 0;
    std::array<std::vector<std::vector<std::size_t>>, 3> parts;  // uses by kind of step and phase
  };

  void number_uses();

  std::vector<std::unique_ptr<Stage>> slices_;
  std::vector<std::size_t> first_layers_;  // by slice
  std::vector<LayerUses> layers_;
  std::vector<UnitSpec> units_;
  std::vector<UnitUse> uses_;
};

}  // namespace ranvier::models
