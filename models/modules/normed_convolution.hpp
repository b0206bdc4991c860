// Convolution with batch normalization, and the addition and ReLU that follow; running statistics. A convolution is
// rows of patches (ops/patches.hpp) times kernels, a few samples at a time, without bias.
//
// Training normalizes with the statistics of the microbatch's rows, so that results are the same on any grid.
// Evaluation uses running averages over steps. They are model state: an averaged unit (UnitSpec::averaged), to which
// each microbatch adds its share. If a run freezes the running statistics, training uses them too.
//
// Letters: B samples, H × W pixels in, P × Q out, N = B · P · Q rows of the output, I channels in, C out, K × K pixels
// of a kernel. Images are [B, H, W, channels], kernels [C, I, K, K].
#pragma once

#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/batch_norm.hpp"
#include "models/ops/patches.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace ranvier::models {

/// Weight of a step's batch statistics in the running averages; PyTorch's default.
inline constexpr float batch_norm_momentum = 0.1f;

struct ConvolutionOptions {
  std::string name;        ///< name of the kernels, without .weight
  std::string norm;        ///< name of the norm's parameters and statistics
  std::size_t in = 0;      ///< I
  std::size_t out = 0;     ///< C
  std::size_t size = 0;    ///< H and W
  std::size_t kernel = 1;  ///< K, odd; borders are padded with (K - 1) / 2 zeros
  std::size_t stride = 1;
};

class NormedConvolution {
 public:
  /// Offsets of a call's arrays.
  struct Arrays {
    std::size_t rows = 0;          ///< N
    std::size_t product = 0;       ///< saved [N, C]: the convolution's output
    std::size_t statistics = 0;    ///< saved [3, C] float
    std::optional<std::size_t> y;  ///< saved [N, C]: the output, if it is saved
    std::size_t d_product = 0;     ///< deferred [N, C]: gradient of the convolution's output
    std::size_t sums = 0;          ///< deferred [2, C] float: gradients of weight and bias
    std::size_t kept = 0;  ///< deferred [2, C]: copy of weight and bias, for use after their unit is released
  };

  /// Declares `name`.weight, `norm`.weight and `norm`.bias in `unit`, and `norm`.running_mean and .running_var in
  /// `statistics`, a unit that is averaged with batch_norm_momentum. Kernels are initialized as in He et al. 2015 for
  /// layers before ReLU, by the number of outputs (fan-out). Throws ErrorCode::usage if only one of the running
  /// statistics is trained.
  NormedConvolution(UnitBuilder& builder, std::size_t unit, std::size_t statistics,
                    const ConvolutionOptions& options);

  [[nodiscard]] std::size_t in() const { return options_.in; }
  [[nodiscard]] std::size_t out() const { return options_.out; }
  [[nodiscard]] std::size_t in_rows(std::size_t samples) const { return samples * options_.size * options_.size; }
  [[nodiscard]] std::size_t out_size() const { return patches(1).out_height(); }  ///< P and Q
  [[nodiscard]] std::size_t out_rows(std::size_t samples) const { return patches(samples).rows(); }
  /// FLOPs of forward and backward: 6 per kernel element and output pixel.
  [[nodiscard]] double flops_per_sample() const;

  /// `activations`: whether the output is saved.
  [[nodiscard]] Arrays plan(CallMemory& memory, std::size_t samples,
                            SavedActivations activations = SavedActivations::few) const;
  /// Scratch of each of the calls below.
  [[nodiscard]] std::size_t scratch_bytes(std::size_t samples) const;

  /// Operations after the norm: y = relu(norm(convolution(x)) + addend). No addition if `addend` is null.
  struct Follow {
    const std::byte* addend = nullptr;
    bool relu = true;
  };
  void forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x, std::byte* scratch,
               const Follow& follow) const;

  /// Copies the norm's parameters. Called in backward_input, before again() and backward_norm().
  void keep(const LayerCall& call, const Arrays& at) const;
  /// Recomputes y, unless it is saved.
  void again(const LayerCall& call, const Arrays& at, std::byte* y, const Follow& follow) const;
  /// Gradient of the convolution's output from dy. `d_sum`: receives the gradient of ReLU's input, unless it is null.
  void backward_norm(const LayerCall& call, const Arrays& at, std::byte* d_sum, const std::byte* dy,
                     std::byte* scratch, const Follow& follow) const;
  /// Gradient dx of x, after backward_norm().
  void backward_input(const LayerCall& call, const Arrays& at, std::byte* dx, std::byte* scratch) const;
  void backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x, std::byte* scratch) const;

  /// Whether the queued work depends on the loss factor: running statistics add a share of each batch.
  [[nodiscard]] bool averages() const { return !fixed_; }

 private:
  [[nodiscard]] PatchShape patches(std::size_t samples) const;
  /// Whether the image's rows are its patches.
  [[nodiscard]] bool is_direct() const { return options_.kernel == 1 && options_.stride == 1; }
  /// Number of samples whose patches are stored at once; depends on the sizes only.
  [[nodiscard]] std::size_t samples_at_once(std::size_t samples) const;
  /// Bytes of these samples' patches as floats, aligned for another array after them.
  [[nodiscard]] std::size_t bytes_at_once(std::size_t samples) const;
  /// Calls f(first sample, patches) for consecutive groups of samples.
  template <typename F>
  void for_some(std::size_t samples, const F& f) const;
  /// Rows of patches of these samples of x: their pixels, or a copy in `scratch`.
  [[nodiscard]] const std::byte* rows_of(const LayerCall& call, const std::byte* x, std::size_t first,
                                         const PatchShape& some, std::byte* scratch) const;
  /// Gradient of the kernels.
  void backward_kernels(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch) const;

  [[nodiscard]] BatchNormShape shape(std::size_t rows) const { return {rows, options_.out, epsilon}; }
  /// Values of a call with these parameters of the norm.
  [[nodiscard]] static BatchNormValues values(const LayerCall& call, const Arrays& at, const Follow& follow,
                                              const std::byte* weight, const std::byte* bias);
  /// Values of a backward call: with the parameters that keep() copied.
  [[nodiscard]] BatchNormValues kept_values(const LayerCall& call, const Arrays& at, const Follow& follow) const;

  static constexpr float epsilon = 1e-5f;

  ConvolutionOptions options_;
  ParameterRef kernels_, weight_, bias_, mean_, variance_;
  runtime::DType dtype_, gradient_dtype_;
  bool fixed_;  ///< statistics are frozen
};

}  // namespace ranvier::models
