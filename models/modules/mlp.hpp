// The MLP with GELU: down(gelu(up(x))), with biases. A tile of it is columns of what `up` gives, and what `down` makes
// of them.
//
// Letters: N rows, C channels, F channels inside, S tiles.
#pragma once

#include "models/memory_layout.hpp"
#include "models/ops/gelu.hpp"
#include "models/modules/linear.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct MlpOptions {
  struct Matrix {
    std::string name;  ///< of its .weight and .bias
    Initializer initializer;
  };

  Matrix up, down;
  std::size_t channels = 0;  ///< C
  std::size_t inner = 0;     ///< F
  LinearOptions::Layout layout = LinearOptions::Layout::out_in;
  GeluForm gelu = GeluForm::erf;
  Precision precision;
  std::vector<std::size_t> tiles;  ///< as LinearOptions::Cut::groups; S divides F
};

class Mlp {
 public:
  using Options = MlpOptions;

  struct Arrays {
    std::size_t inner;                  ///< saved [S, N, F/S]: before GELU; backward_input replaces it by `active`,
                                        ///< unless that is saved
    std::optional<std::size_t> active;  ///< saved [S, N, F/S]: input of `down`, if all activations are saved
    std::size_t d_inner;                ///< deferred [S, N, F/S]
    std::size_t workspace;              ///< workspace [N, F/S] of forward, unless `active` is saved
    std::size_t workspace_bytes;
    std::size_t tile_bytes;  ///< of an [N, F/S]
    Linear::Arrays up, down;
  };

  Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options);

  // As Linear's.
  [[nodiscard]] bool has_adapters() const { return up_.has_adapters() || down_.has_adapters(); }
  [[nodiscard]] bool drops() const { return up_.drops() || down_.drops(); }
  [[nodiscard]] const Tiles& tiles() const { return tiles_; }

  /// `scratch`: as Linear's.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            const MicrobatchShape& shape, std::size_t scratch) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  // As with Linear, each call but the last two does one tile, and y and dx are there after the last of them.

  /// y[N, C] = mlp(x[N, C]), and the addend, if there is one, which is not y.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x, const std::byte* addend,
               std::size_t tile) const;
  /// y[N, C] = mlp(x[N, C]) where text is read. wide[N, wide_channels()] and narrow[N, narrow_channels()] are scratch;
  /// narrow may be x.
  void decode(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* wide, std::byte* narrow) const;
  [[nodiscard]] std::size_t wide_channels() const { return inner_; }
  [[nodiscard]] std::size_t narrow_channels() const { return 0; }

  /// dx from dy.
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy,
                      std::size_t tile) const;
  /// Of the matrices; of whole ones that are stored [in, out] of their biases too. x and dy as the others got them.
  void backward_matrix(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy,
                       std::size_t tile) const;
  /// As Linear's.
  void backward_adapters(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const;
  /// After backward_matrix(), of the biases that are left.
  void backward_bias(const LayerCall& call, const Arrays& at, const std::byte* dy) const;

 private:
  /// A tile's input of `down` in the backward pass: `active`, or the values that replaced `inner`.
  [[nodiscard]] static std::byte* active(const LayerCall& call, const Arrays& at, std::size_t tile = 0) {
    return call.saved + at.active.value_or(at.inner) + tile * at.tile_bytes;
  }

  std::size_t inner_;
  GeluForm gelu_;
  runtime::DType dtype_;
  Linear up_, down_;
  Tiles tiles_;
};

}  // namespace ranvier::models
