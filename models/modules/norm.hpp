// LayerNorm or RMSNorm over a layer's rows, or over groups of channels of each row (heads).
//
// Letters: N rows, G groups, C channels per group.
#pragma once

#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/norm.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier::models {

class Norm {
 public:
  /// Offsets of a call's arrays.
  struct Arrays {
    std::size_t mean = 0;          ///< saved [N] float; LayerNorm only
    std::size_t rstd;              ///< saved [N, G] float
    std::optional<std::size_t> y;  ///< saved [N, G, C]: the output, if it is saved
    std::size_t sums;              ///< deferred float: gradients of the parameters, [2, C] or [C]
    std::size_t kept;              ///< deferred: copy of the parameters, for use after their unit is released
  };

  /// Declares `name`.weight and, for LayerNorm, `name`.bias. Each call sets the shape's rows.
  Norm(UnitBuilder& builder, std::size_t unit, const std::string& name, const NormShape& shape);

  /// `activations`: whether the output is saved.
  [[nodiscard]] Arrays plan(CallMemory& memory, std::size_t rows,
                            SavedActivations activations = SavedActivations::few) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;  ///< scratch of backward()
  [[nodiscard]] std::size_t parameters() const;                     ///< elements

  /// y = norm(x), or norm(x + branch) with x + branch stored in `sum`.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
               const std::byte* branch = nullptr, std::byte* sum = nullptr) const;

  /// Normalizes rows in place, y_stride elements apart. RMSNorm only, without backward pass.
  void in_place(const LayerCall& call, const Arrays& at, std::byte* rows) const;

  /// Copies the parameters. Called in backward_input, before backward() and again().
  void keep(const LayerCall& call, const Arrays& at) const;
  /// dx = gradient of x from dy, plus `residual`.
  void backward(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy, const std::byte* x,
                const std::byte* residual, std::byte* scratch) const;
  /// Recomputes y, unless it is saved.
  void again(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x) const;

  /// For backward_weight.
  void store_gradients(const LayerCall& call, const Arrays& at) const;

 private:
  [[nodiscard]] bool is_layer() const { return shape_.kind == NormKind::layer; }
  [[nodiscard]] NormShape shape(std::size_t rows) const {
    NormShape shape = shape_;
    shape.rows = rows;
    return shape;
  }

  NormShape shape_;  ///< without rows
  runtime::DType dtype_, gradient_dtype_;
  ParameterRef weight_, bias_;
  bool adjacent_ = false;  ///< the bias follows the weight without a gap
};

}  // namespace ranvier::models
