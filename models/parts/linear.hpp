// Products of rows with one matrix, or with several side by side (queries, keys and values; gate and up), which are one
// product where their parameters follow each other without gaps.
//
// Letters: N rows, I channels in, O channels out, of all tensors together.
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

class Linear {
 public:
  /// Declares the weights, then the biases.
  Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);

  [[nodiscard]] std::size_t in() const { return in_; }
  [[nodiscard]] std::size_t out() const { return out_; }

  /// Of backward_weight()'s scratch.
  [[nodiscard]] std::size_t scratch_bytes() const;

  /// y[N, O] = x[N, I] · weightᵀ + bias
  void forward(const LayerCall& call, std::byte* y, const std::byte* x) const;
  /// The same plus addend[N, O], which is not y.
  void forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend) const;

  /// dx[N, I] = dy[N, O] · weight
  void backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy) const;

  /// The parameters' gradients.
  void backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch) const;

 private:
  /// Some of the outputs, whose parameters follow each other.
  struct Run {
    std::size_t first = 0;
    std::size_t channels = 0;
    ParameterPlace place;
  };

  /// Of weights, whose outputs have `elements` each, or of biases.
  static void append(std::vector<Run>& runs, const Run& next, std::size_t elements);
  [[nodiscard]] const std::byte* bias_of(const LayerCall& call, const Run& weight) const;

  std::size_t in_, out_ = 0;
  LinearOptions::Layout layout_;
  Precision precision_;
  std::vector<Run> weights_;
  std::vector<Run> biases_;  ///< empty: there are none
};

}  // namespace ranvier::models
