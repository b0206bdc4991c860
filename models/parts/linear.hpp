// Products of rows with one matrix, or with several side by side (queries, keys and values; gate and up), which are one
// product where their parameters follow each other without gaps.
//
// Where a run tunes adapters (models/lora.hpp), each tensor that is one of their targets has one.
//
// Letters: N rows, I channels in, O channels out, of all tensors together, R the rank of adapters.
#pragma once

#include "models/memory_layout.hpp"
#include "models/parts/layer_call.hpp"
#include "models/parts/unit_builder.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

struct LinearOptions {
  struct Tensor {
    std::string name;          ///< of its .weight and .bias
    std::size_t channels = 0;  ///< of the output
  };
  /// How a weight is stored.
  enum class Layout {
    out_in,  ///< Hugging Face's linear layers
    in_out,  ///< GPT-2's; of one tensor only
  };

  std::vector<Tensor> tensors;  ///< outputs in this order
  std::size_t in = 0;           ///< I
  Layout layout = Layout::out_in;
  bool bias = false;
  Initializer initializer;  ///< of weights; biases begin with zeros
  Precision precision;
};

/// Where the arrays of a call's adapters lie, if there are some.
struct LinearArrays {
  std::size_t inner = 0;    ///< saved, of each [N, R]: alpha / R · A(dropout(x))
  std::size_t d_inner = 0;  ///< deferred, of each [N, R]: the gradient of A(dropout(x))
  std::size_t dropped = 0;  ///< workspace [N, I], with dropout
  std::size_t bytes = 0;    ///< of an [N, R]; 0: nothing is planned
};

class Linear {
 public:
  using Arrays = LinearArrays;

  /// Declares the weights, then the biases, then the adapters.
  Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);

  [[nodiscard]] std::size_t in() const { return in_; }
  [[nodiscard]] std::size_t out() const { return out_; }

  [[nodiscard]] bool has_adapters() const { return !adapters_.empty(); }
  /// Whether calls in training drop values of their own.
  [[nodiscard]] bool drops() const { return has_adapters() && dropout_ > 0; }
  /// For the calls below, which layers without adapters make without it.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace,
                            std::size_t rows) const;

  /// Of backward_weight()'s scratch.
  [[nodiscard]] std::size_t scratch_bytes() const;

  /// y[N, O] = x[N, I] · weightᵀ + bias
  void forward(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at = {}) const;
  /// The same plus addend[N, O], which is not y.
  void forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend,
                   const Arrays& at = {}) const;

  /// dx[N, I] = dy[N, O] · weight
  void backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at = {}) const;

  /// The parameters' gradients.
  void backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch,
                       const Arrays& at = {}) const;

 private:
  /// Some of the outputs, whose parameters follow each other.
  struct Run {
    std::size_t first = 0;
    std::size_t channels = 0;
    ParameterPlace place;
  };

  struct Adapter {
    std::size_t first = 0;  ///< of the outputs
    std::size_t channels = 0;
    ParameterPlace a, b;
    std::uint32_t dropout_site = 0;
  };

  void add_biases(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  void add_adapters(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  void adapt(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at) const;
  void adapt_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at) const;
  /// x, or a copy of which the adapter's dropout has taken its part.
  [[nodiscard]] const std::byte* dropped(const LayerCall& call, const Adapter& adapter, const std::byte* x,
                                         const Arrays& at) const;
  void drop(const LayerCall& call, const Adapter& adapter, std::byte* values) const;
  /// Elements from a row of the outputs to the next, where they are some of more.
  [[nodiscard]] std::size_t stride_of(const Adapter& adapter) const { return adapter.channels < out_ ? out_ : 0; }

  /// Of weights, whose outputs have `elements` each, or of biases.
  static void append(std::vector<Run>& runs, const Run& next, std::size_t elements);
  [[nodiscard]] const std::byte* bias_of(const LayerCall& call, const Run& weight) const;

  std::size_t in_, out_ = 0;
  LinearOptions::Layout layout_;
  Precision precision_;
  std::vector<Run> weights_;
  std::vector<Run> biases_;  ///< empty: there are none
  std::vector<Adapter> adapters_;
  std::size_t rank_ = 0;
  float factor_ = 0, dropout_ = 0;
};

}  // namespace ranvier::models
