// MLP of a transformer block: down(active(up(x))) with GELU, or with a gate (SwiGLU): down(silu(gate(x)) · up(x)). A
// tile is a share of the inner channels: columns of the outputs of `up` and `gate`, and their contribution to `down`.
//
// Letters: N rows, C channels, F channels inside, U output channels of `up` with its gate (F or 2F), S tiles.
#pragma once

#include "models/modules/linear.hpp"
#include "models/ops/activation.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct MlpOptions {
  struct Matrix {
    std::string name;  ///< name of .weight and .bias
    Initializer initializer;
  };

  /// With out_in only and without biases; none: GELU. With the name of `up`: one tensor, the gate's rows first.
  std::optional<Matrix> gate;
  Matrix up, down;
  std::size_t channels = 0;  ///< C
  std::size_t inner = 0;     ///< F
  bool bias = false;
  LinearOptions::Layout layout = LinearOptions::Layout::out_in;
  GeluForm gelu = GeluForm::erf;
  std::vector<std::size_t> tiles;  ///< as LinearOptions::Cut::groups; S divides F
};

class Mlp {
 public:
  struct Arrays {
    std::size_t up;  ///< saved [S, N, U/S]: output of `up` and `gate`. backward_input replaces it:
                     ///< with a gate by its gradient, otherwise by `active`, unless that is saved
    std::optional<std::size_t> active;  ///< saved [S, N, F/S]: input of `down`, if all activations are saved
    std::size_t kept = 0;   ///< deferred [S, N, F/S]: with a gate the input of `down`, if few activations
                            ///< are saved, otherwise the gradient of `up`'s output
    std::size_t workspace;  ///< workspace [N, F/S]: input of `down`, or its gradient
    std::size_t workspace_bytes;
    std::size_t up_bytes;    ///< bytes of an [N, U/S]
    std::size_t tile_bytes;  ///< bytes of an [N, F/S]
    Linear::Arrays up_product, down_product;
  };

  Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options);

  // Same as Linear's.
  [[nodiscard]] bool has_adapters() const { return up_.has_adapters() || down_.has_adapters(); }
  [[nodiscard]] bool drops() const { return up_.drops() || down_.drops(); }
  [[nodiscard]] const Tiles& tiles() const { return tiles_; }

  /// `scratch`: see Linear::plan.
  [[nodiscard]] Arrays plan(CallMemory& memory, const MicrobatchShape& shape, std::size_t scratch) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  // Each call except decode(), backward_adapters() and backward_bias() computes one tile. y and dx are complete after
  // the last tile.

  /// y[N, C] = mlp(x[N, C]) + addend, unless the addend is null. The addend is not y.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x, const std::byte* addend,
               std::size_t tile) const;
  /// y[N, C] = mlp(x[N, C]) while decoding. Scratch: wide[N, wide_channels()] and narrow[N, narrow_channels()]; narrow
  /// may be x.
  void decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide, std::byte* narrow) const;
  [[nodiscard]] std::size_t wide_channels() const { return up_.out(); }
  [[nodiscard]] std::size_t narrow_channels() const { return gated_ ? inner_ : 0; }

  /// Computes dx from dy.
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                      std::size_t tile) const;
  /// Gradients of the matrices, from the same x and dy as in forward and backward_input. For untiled [in, out] weights,
  /// also of the biases.
  void backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                       std::size_t tile) const;
  /// Same as Linear's.
  void backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const;
  /// Gradients of the biases that backward_matrix() does not compute.
  void backward_bias(const LayerCall& call, const Arrays& at, const std::byte* dy) const;

 private:
  [[nodiscard]] static std::byte* up(const LayerCall& call, const Arrays& at, std::size_t tile) {
    return call.saved + at.up + tile * at.up_bytes;
  }
  /// A tile's input of `down` in the backward pass.
  [[nodiscard]] std::byte* active(const LayerCall& call, const Arrays& at, std::size_t tile = 0) const {
    if (!at.active && gated_) return call.deferred + at.kept + tile * at.tile_bytes;
    return call.saved + at.active.value_or(at.up) + tile * at.tile_bytes;
  }
  /// Gradient of the output of `up` and `gate`.
  [[nodiscard]] std::byte* d_up(const LayerCall& call, const Arrays& at, std::size_t tile = 0) const {
    return gated_ ? up(call, at, tile) : call.deferred + at.kept + tile * at.tile_bytes;
  }

  bool gated_;
  std::size_t inner_;
  GeluForm gelu_;
  runtime::DType dtype_;
  Linear up_;  ///< with the gate's matrix first
  Linear down_;
  Tiles tiles_;
};

}  // namespace ranvier::models
