// The MLP with GELU: down(gelu(up(x))), with biases.
//
// Letters: N rows, C channels, F channels inside.
#pragma once

#include "models/memory_layout.hpp"
#include "models/ops/gelu.hpp"
#include "models/parts/linear.hpp"

#include <string>

namespace ranvier::models {

struct MlpOptions {
  std::string up, down;      ///< names of the two matrices and their biases
  std::size_t channels = 0;  ///< C
  std::size_t inner = 0;     ///< F
  GeluForm gelu = GeluForm::erf;
  Initializer initializer;  ///< of both matrices
  Precision precision;
};

class Mlp {
 public:
  struct Arrays {
    std::size_t inner;      ///< saved [N, F]: before GELU; backward_input replaces it by what goes into `down`
    std::size_t d_inner;    ///< deferred [N, F]
    std::size_t workspace;  ///< workspace [N, F]
  };

  Mlp(UnitBuilder& builder, std::size_t unit, const MlpOptions& options);

  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            std::size_t rows) const;

  /// y[N, C] = mlp(x[N, C]), and the addend, if there is one, which is not y.
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
               const std::byte* addend = nullptr) const;
  /// dx from dy.
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy) const;
  /// x and dy as the others got them.
  void backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const;

 private:
  std::size_t inner_;
  GeluForm gelu_;
  runtime::DType dtype_;
  Linear up_, down_;
};

}  // namespace ranvier::models
