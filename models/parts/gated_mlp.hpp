// The MLP with SwiGLU: down(silu(gate(x)) · up(x)).
//
// Letters: N rows, C channels, F channels inside.
#pragma once

#include "models/memory_layout.hpp"
#include "models/parts/linear.hpp"

#include <string>

namespace ranvier::models {

struct GatedMlpOptions {
  std::size_t channels = 0;  ///< C
  std::size_t inner = 0;     ///< F
  Initializer initializer;   ///< of the three matrices
  Precision precision;
};

class GatedMlp {
 public:
  struct Arrays {
    std::size_t gate_up;    ///< saved [N, 2F]; backward_input replaces it by its gradient
    std::size_t inner;      ///< deferred [N, F]: what goes into `down`
    std::size_t workspace;  ///< workspace [N, F]
    Linear::Arrays gate_up_adapters, down_adapters;
  };

  /// Declares `name`.gate_proj, `name`.up_proj and `name`.down_proj, without biases.
  GatedMlp(UnitBuilder& builder, std::size_t unit, const std::string& name, const GatedMlpOptions& options);

  /// As Linear's.
  [[nodiscard]] bool drops() const { return gate_up_.drops() || down_.drops(); }

  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            std::size_t rows) const;

  /// y[N, C] = mlp(x[N, C]) + addend
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
               const std::byte* addend) const;
  /// dx from dy.
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy) const;
  /// x and dy as the others got them.
  void backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x, const std::byte* dy) const;

 private:
  std::size_t inner_;
  runtime::DType dtype_;
  Linear gate_up_, down_;
};

}  // namespace ranvier::models
