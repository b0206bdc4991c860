// Convolution without bias: rows of patches (ops/patches.hpp) times kernels, a few samples at a time.
//
// Letters: B samples, H × W pixels in, P × Q out, I channels in, O out, K × K pixels of a kernel. Images are
// [B, H, W, channels], kernels [O, I, K, K].
#pragma once

#include "models/ops/patches.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"

#include <string>

namespace ranvier::models {

struct ConvolutionOptions {
  std::string name;        ///< name of the parameter, without .weight
  std::size_t in = 0;      ///< I
  std::size_t out = 0;     ///< O
  std::size_t size = 0;    ///< H and W
  std::size_t kernel = 1;  ///< K, odd; borders are padded with (K - 1) / 2 zeros
  std::size_t stride = 1;
  Precision precision;
};

class Convolution {
 public:
  /// Declares `name`.weight, initialized as in He et al. 2015 for layers before ReLU, by the number of outputs
  /// (fan-out).
  Convolution(UnitBuilder& builder, std::size_t unit, const ConvolutionOptions& options);

  [[nodiscard]] std::size_t in() const { return options_.in; }
  [[nodiscard]] std::size_t out() const { return options_.out; }
  [[nodiscard]] std::size_t in_rows(std::size_t samples) const { return samples * options_.size * options_.size; }
  [[nodiscard]] std::size_t out_size() const { return patches(1).out_height(); }  ///< P and Q
  [[nodiscard]] std::size_t out_rows(std::size_t samples) const { return patches(samples).rows(); }
  /// FLOPs of forward and backward: 6 per weight and output pixel.
  [[nodiscard]] double flops_per_sample() const;
  /// Scratch of each of the three passes below.
  [[nodiscard]] std::size_t scratch_bytes(std::size_t samples) const;

  void forward(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* scratch) const;
  void backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, std::byte* scratch) const;
  void backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch) const;

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

  ConvolutionOptions options_;
  ParameterRef weight_;
};

}  // namespace ranvier::models
