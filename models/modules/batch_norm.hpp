// Batch normalization with the addition and ReLU that follow it, and its running statistics.
//
// Training normalizes with the statistics of the microbatch's rows, so that results are the same on any grid.
// Evaluation uses running averages over steps. They are model state: an averaged unit (UnitSpec::averaged), to which
// each microbatch adds its share. If a run freezes the running statistics, training uses them too.
//
// Letters: N rows of a microbatch, C channels.
#pragma once

#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/batch_norm.hpp"
#include "models/ops/memory_layout.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier::models {

/// Weight of a step's batch statistics in the running averages; PyTorch's default.
inline constexpr float batch_norm_momentum = 0.1f;

class BatchNorm {
 public:
  /// Offsets of a call's arrays.
  struct Arrays {
    std::size_t statistics;        ///< saved [3, C] float
    std::optional<std::size_t> y;  ///< saved [N, C]: the output, if it is saved
    std::size_t sums;              ///< deferred [2, C] float: gradients of weight and bias
    std::size_t kept;  ///< deferred [2, C]: copy of weight and bias, for use after their unit is released
  };

  /// Declares `name`.weight and .bias in `unit`, and .running_mean and .running_var in `statistics`, a unit that is
  /// averaged with batch_norm_momentum. Throws ErrorCode::usage if only one of the running statistics is trained.
  BatchNorm(UnitBuilder& builder, std::size_t unit, std::size_t statistics, const std::string& name,
            std::size_t channels, const Precision& precision);

  /// `rows`: N. `activations`: whether the output is saved.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, std::size_t rows = 0,
                            SavedActivations activations = SavedActivations::few) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  /// Address of the output: the saved array, or `scratch`.
  [[nodiscard]] static std::byte* output(const LayerCall& call, const Arrays& at, std::byte* scratch) {
    return at.y ? call.saved + *at.y : scratch;
  }

  /// Operations after the norm: y = relu(norm(x) + addend). No addition if `addend` is null.
  struct Follow {
    const std::byte* addend = nullptr;
    bool relu = true;
  };
  void forward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
               std::byte* scratch, const Follow& follow) const;

  /// Copies the parameters. Called in backward_input, before again() and backward().
  void keep(const LayerCall& call, const Arrays& at) const;
  /// Recomputes y, unless it is saved.
  void again(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
             const Follow& follow) const;
  /// Gradient dx of x from dy; both may be the same array. `d_sum`: receives the gradient of ReLU's input, unless it is
  /// null.
  void backward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* dx, std::byte* d_sum,
                const std::byte* dy, const std::byte* x, std::byte* scratch, const Follow& follow) const;

  /// For backward_weight. `scratch`: [2, C] floats.
  void store_gradients(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* scratch) const;

  /// Whether the queued work depends on the loss factor: running statistics add a share of each batch.
  [[nodiscard]] bool averages() const { return !fixed_; }

 private:
  [[nodiscard]] BatchNormShape shape(std::size_t rows) const { return {rows, channels_, epsilon}; }
  [[nodiscard]] BatchNormValues values(const LayerCall& call, const Arrays& at, const std::byte* x,
                                       const Follow& follow) const;

  static constexpr float epsilon = 1e-5f;

  std::size_t channels_;
  Precision precision_;
  ParameterRef weight_, bias_, mean_, variance_;
  bool fixed_;  ///< statistics are frozen
};

}  // namespace ranvier::models
