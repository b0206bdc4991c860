// MLP with SwiGLU: down(silu(gate(x)) · up(x)). A tile is a share of the inner channels: columns of the outputs of
// `gate` and `up`, and their contribution to `down`.
//
// Letters: N rows, C channels, F channels inside, S tiles.
#pragma once

#include "models/modules/linear.hpp"
#include "models/ops/memory_layout.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct GatedMlpOptions {
  std::string gate, up, down;  ///< names of the three matrices, which have no biases
  std::size_t channels = 0;    ///< C
  std::size_t inner = 0;       ///< F
  Initializer initializer;     ///< initial values of the three matrices
  Precision precision;
  std::vector<std::size_t> tiles;  ///< as LinearOptions::Cut::groups; S divides F
};

class GatedMlp {
 public:
  using Options = GatedMlpOptions;

  struct Arrays {
    std::size_t gate_up;               ///< saved [S, N, 2F/S]; backward_input replaces it by its gradient
    std::optional<std::size_t> saved;  ///< saved [S, N, F/S]: input of `down`, if all activations are saved
    std::size_t inner = 0;             ///< deferred [S, N, F/S]: input of `down`, if few activations are saved
    std::size_t workspace;             ///< workspace [N, F/S]: input of `down`, or the gradient with respect to it
    std::size_t workspace_bytes;
    std::size_t wide_bytes;  ///< bytes of an [N, 2F/S]
    std::size_t tile_bytes;  ///< bytes of an [N, F/S]
    Linear::Arrays gate_up_product, down_product;
  };

  GatedMlp(UnitBuilder& builder, std::size_t unit, const GatedMlpOptions& options);

  // Same as Linear's.
  [[nodiscard]] bool has_adapters() const { return gate_up_.has_adapters() || down_.has_adapters(); }
  [[nodiscard]] bool drops() const { return gate_up_.drops() || down_.drops(); }

  [[nodiscard]] const Tiles& tiles() const { return tiles_; }

  /// `scratch`: see Linear::plan.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            const MicrobatchShape& shape, std::size_t scratch) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  // Each call except decode() and backward_adapters() computes one tile. y and dx are complete after the last tile.

  /// y[N, C] = mlp(x[N, C]) + addend, unless the addend is null. The addend is not y.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x, const std::byte* addend,
               std::size_t tile) const;
  /// y[N, C] = mlp(x[N, C]) while decoding. Scratch: wide[N, wide_channels()] and narrow[N, narrow_channels()]; narrow
  /// may be x.
  void decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide, std::byte* narrow) const;
  [[nodiscard]] std::size_t wide_channels() const { return 2 * inner_; }
  [[nodiscard]] std::size_t narrow_channels() const { return inner_; }

  /// Computes dx from dy.
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                      std::size_t tile) const;
  /// Gradients of the matrices, from the same x and dy as in forward and backward_input.
  void backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                       std::size_t tile) const;
  /// Same as Linear's, once for all tiles.
  void backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const;

 private:
  /// A tile's input of `down` in the backward pass.
  [[nodiscard]] static std::byte* inner(const LayerCall& call, const Arrays& at, std::size_t tile = 0) {
    return (at.saved ? call.saved + *at.saved : call.deferred + at.inner) + tile * at.tile_bytes;
  }

  std::size_t inner_;
  runtime::DType dtype_;
  Linear gate_up_, down_;
  Tiles tiles_;
};

}  // namespace ranvier::models
