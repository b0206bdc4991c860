// LayerNorm or RMSNorm of a layer's rows, or of each of several groups of channels of them (heads).
//
// Letters: N rows, G groups, C channels of a group.
#pragma once

#include "models/memory_layout.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier::models {

struct NormOptions {
  enum class Kind { layer, rms };
  Kind kind = Kind::layer;
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;
  std::size_t groups = 1;    ///< G; RMSNorm only, as are gaps between rows:
  std::size_t x_stride = 0;  ///< RmsNormShape::x_stride
  std::size_t y_stride = 0;
  Precision precision;
};

class Norm {
 public:
  /// Where a call's arrays lie.
  struct Arrays {
    std::size_t mean = 0;          ///< saved [N] float; LayerNorm's
    std::size_t rstd;              ///< saved [N, G] float
    std::optional<std::size_t> y;  ///< saved [N, G, C]: the output, if it is saved
    std::size_t sums;              ///< deferred float: gradients of the parameters, [2, C] or [C]
    std::size_t kept;              ///< deferred: the parameters, for what is computed after they were given up
  };

  /// Declares `name`.weight and, of a LayerNorm, `name`.bias.
  Norm(UnitBuilder& builder, std::size_t unit, const std::string& name, const NormOptions& options);

  /// `activations`: whether the output is saved.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, std::size_t rows,
                            SavedActivations activations = SavedActivations::few) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;  ///< for backward()
  [[nodiscard]] std::size_t parameters() const;                     ///< elements

  /// The output's place: the saved array, or else `scratch`.
  [[nodiscard]] static std::byte* output(const LayerCall& call, const Arrays& at, std::byte* scratch) {
    return at.y ? call.saved + *at.y : scratch;
  }

  /// y = norm of x, or of x + branch, which goes to `sum`.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
               const std::byte* branch = nullptr, std::byte* sum = nullptr) const;

  /// rows = norm of them, which are y_stride apart; RMSNorm only. Nothing goes back through it.
  void in_place(const LayerCall& call, const Arrays& at, std::byte* rows) const;

  /// In backward_input, before the other two: the parameters for them.
  void keep(const LayerCall& call, const Arrays& at) const;
  /// dx = gradient of x for dy, that of y, plus `residual`.
  void backward(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy, const std::byte* x,
                const std::byte* residual, std::byte* scratch) const;
  /// y once more, unless it is saved.
  void again(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x) const;

  /// In backward_weight.
  void store_gradients(const LayerCall& call, const Arrays& at) const;

 private:
  [[nodiscard]] bool is_layer() const { return options_.kind == NormOptions::Kind::layer; }

  NormOptions options_;
  runtime::DType dtype_;
  ParameterRef weight_, bias_;
  bool adjacent_ = false;  ///< the bias begins where the weight ends
};

}  // namespace ranvier::models
