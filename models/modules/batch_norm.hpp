// Batch normalisation with what follows it, and its running statistics.
//
// In training the statistics are those of the microbatch's rows, so that they are the same on any grid. What evaluation
// uses are running averages of them over steps, which are state of the model: a unit that is averaged
// (UnitSpec::averaged), to which each microbatch adds its share. Where a run freezes the running statistics, they are
// used in training, too.
//
// Letters: N rows of a microbatch, C channels.
#pragma once

#include "models/memory_layout.hpp"
#include "models/ops/batch_norm.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier::models {

/// What a step takes over of its batch's statistics: PyTorch's default.
inline constexpr float batch_norm_momentum = 0.1f;

class BatchNorm {
 public:
  /// Where a call's arrays lie.
  struct Arrays {
    std::size_t statistics;        ///< saved [3, C] float
    std::optional<std::size_t> y;  ///< saved [N, C]: the output, if it is saved
    std::size_t sums;              ///< deferred [2, C] float: gradients of weight and bias
    std::size_t kept;  ///< deferred [2, C]: weight and bias, for what is computed after they were given up
  };

  /// Declares `name`.weight and .bias in `unit`, .running_mean and .running_var in `statistics`, which is a group of
  /// batch_norm_momentum. Throws ErrorCode::usage where only one of the latter is trained.
  BatchNorm(UnitBuilder& builder, std::size_t unit, std::size_t statistics, const std::string& name,
            std::size_t channels, const Precision& precision);

  /// `rows`: N, of which the output is saved with all activations.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, std::size_t rows = 0,
                            SavedActivations activations = SavedActivations::few) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  /// The output's place: the saved array, or else `scratch`.
  [[nodiscard]] static std::byte* output(const LayerCall& call, const Arrays& at, std::byte* scratch) {
    return at.y ? call.saved + *at.y : scratch;
  }

  /// y = norm of x, plus `addend` unless it is null, through relu unless it is not asked for.
  struct Follow {
    const std::byte* addend = nullptr;
    bool relu = true;
  };
  void forward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
               std::byte* scratch, const Follow& follow) const;

  /// In backward_input, before the other two: the parameters for them.
  void keep(const LayerCall& call, const Arrays& at) const;
  /// y once more, unless it is saved.
  void again(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
             const Follow& follow) const;
  /// dx for dy, which may be the same array; `d_sum` is the gradient of what relu is of, unless it is null.
  void backward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* dx, std::byte* d_sum,
                const std::byte* dy, const std::byte* x, std::byte* scratch, const Follow& follow) const;

  /// In backward_weight. Scratch: for [2, C] floats.
  void store_gradients(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* scratch) const;

  /// Whether what is queued depends on the loss's factor: running statistics take a share of the batch.
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
