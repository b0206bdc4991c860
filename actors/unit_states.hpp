// The model states of one rank: for each unit of its stage the parameters as layers read them, the fp32
// master copy and AdamW's moments, and one gradient buffer for each use of the unit on this stage.
//
//   precision        working  gradient  master  moments   bytes per parameter
//   fp32             4        4         –       8         16
//   bf16, fp16       2        4         4       8         18
//   … half gradients 2        2         4       8         16
//
// A tied unit has a gradient buffer per use, because uses are accumulated separately and summed once.
#pragma once

#include "models/stage.hpp"
#include "runtime/arena.hpp"
#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

struct UnitState {
  const models::UnitSpec* spec = nullptr;
  std::size_t global_index = 0;      ///< in the architecture's units
  std::size_t elements = 0;          ///< padded to a multiple of the column
  std::byte* working = nullptr;      ///< compute dtype; the master copy itself in fp32
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  std::vector<std::byte*> gradients; ///< by use, gradient dtype; the first one ends up with the sum
  std::vector<runtime::DecaySegment> segments;
};

class UnitStates {
 public:
  /// Adds the states of `stage` to `plan`. `architecture_units` gives every unit its global index.
  UnitStates(const models::Stage& stage, const std::vector<models::UnitSpec>& architecture_units, int g_data,
             const models::Precision& precision, runtime::MemoryPlan& plan);

  /// Resolves addresses and tells the stage about them.
  void bind(const runtime::Arena& arena, models::Stage& stage);

  [[nodiscard]] std::vector<UnitState>& all() noexcept { return units_; }
  [[nodiscard]] const std::vector<UnitState>& all() const noexcept { return units_; }
  [[nodiscard]] const models::Precision& precision() const noexcept { return precision_; }

 private:
  struct Places {
    runtime::MemoryId working, master, moments, gradients;
  };

  models::Precision precision_;
  std::vector<UnitState> units_;
  std::vector<Places> places_;
};

}  // namespace ranvier::actors
