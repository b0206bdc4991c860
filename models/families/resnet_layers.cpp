// Layers of a wide residual network: stem and bottleneck block; the head is modules/classification_head.hpp.
#include "models/families/resnet.hpp"
#include "models/modules/classification_head.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/normed_convolution.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/patches.hpp"
#include "models/ops/pooling.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

/// pool(relu(norm(convolution(pixels)))), or without the pool.
class ResnetStem final : public Layer {
 public:
  ResnetStem(const ResnetOptions& options, UnitBuilder builder)
      : Layer("stem"),
        dtype_(builder.precision().compute),
        unit_(builder.add_unit(name())),
        statistics_(builder.add_unit(name() + ".statistics", batch_norm_momentum)),
        first_(builder, unit_, statistics_,
               {.name = "conv1",
                .norm = "bn1",
                .in = colours,
                .out = static_cast<std::size_t>(options.channels),
                .size = static_cast<std::size_t>(options.image_size),
                .kernel = options.small_images() ? std::size_t{3} : std::size_t{7},
                .stride = options.small_images() ? std::size_t{1} : std::size_t{2}}),
        pools_(!options.small_images()) {
    set_units(std::move(builder).units());
  }

  double flops_per_sample(int) const override { return first_.flops_per_sample(); }
  std::size_t output_elements(int) const override { return out_rows(1) * first_.out(); }
  [[nodiscard]] std::size_t out_size() const { return pools_ ? pool(1).out_height() : first_.out_size(); }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte* const work = call.workspace;
    std::byte* const normal = pools_ ? work + at.wide : output;
    read(call, at, input);
    first_.forward(call, at.first, normal, work + at.pixels, work + at.scratch, {});
    if (pools_) max_pool_forward(call.stream, pool(call.shape.samples), dtype_, output, places(call, at), normal);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    const Arrays at = arrays(call);
    const std::byte* d_normal = output_gradient;
    first_.keep(call, at.first);
    if (pools_) {
      max_pool_backward(call.stream, pool(call.shape.samples), dtype_, call.workspace + at.wide, output_gradient,
                        places(call, at));
      d_normal = call.workspace + at.wide;
    }
    first_.backward_norm(call, at.first, nullptr, d_normal, call.workspace + at.scratch, {});
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    read(call, at, input);
    first_.backward_weight(call, at.first, call.workspace + at.pixels, call.workspace + at.scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: N rows of the convolution's output, C channels.
  struct Arrays : CallMemory {
    Arrays(const ResnetStem& stem, const MicrobatchShape& shape) {
      const auto samples = static_cast<std::size_t>(shape.samples);
      const std::size_t element = size_of(stem.dtype_), C = stem.first_.out();
      first = stem.first_.plan(*this, samples);
      places = saved.add(stem.pools_ ? stem.out_rows(samples) * C : 0, 1);
      pixels = workspace.add(stem.first_.in_rows(samples) * colours, element);
      wide = workspace.add(stem.pools_ ? first.rows * C : 0, element);
      scratch = workspace.add(1, stem.first_.scratch_bytes(samples));
    }

    NormedConvolution::Arrays first;
    std::size_t places;   ///< saved, a byte per output element: position of the pool's maximum
    std::size_t pixels;   ///< workspace [B, S, S, 3]
    std::size_t wide;     ///< workspace [N, C]: the pool's input, or its gradient
    std::size_t scratch;  ///< workspace: scratch memory of modules
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name())}; }

  void read(const LayerCall& call, const Arrays& at, const std::byte* input) const {
    read_pixels(call.stream, static_cast<std::size_t>(call.shape.samples), first_.in_rows(1), dtype_,
                call.workspace + at.pixels, reinterpret_cast<const std::uint8_t*>(input));
  }

  PatchShape pool(int samples) const {
    return {.samples = static_cast<std::size_t>(samples),
            .height = first_.out_size(),
            .width = first_.out_size(),
            .channels = first_.out(),
            .kernel = 3,
            .stride = 2,
            .padding = 1};
  }
  std::size_t out_rows(std::size_t samples) const { return samples * out_size() * out_size(); }
  static std::uint8_t* places(const LayerCall& call, const Arrays& at) {
    return reinterpret_cast<std::uint8_t*>(call.saved + at.places);
  }

  runtime::DType dtype_;
  std::size_t unit_, statistics_;  ///< groups of the builder
  NormedConvolution first_;
  bool pools_;
};

/// Position and input of a block.
struct ResnetBlockShape {
  std::string name;        ///< "layer2.0"
  std::size_t in = 0;      ///< input channels
  std::size_t inner = 0;   ///< channels of its 3 × 3 convolution
  std::size_t out = 0;     ///< output channels
  std::size_t size = 0;    ///< input size in pixels
  std::size_t stride = 1;  ///< stride of the 3 × 3 convolution
};

/// relu(norm(1 × 1(relu(norm(3 × 3(relu(norm(1 × 1(x)))))))) + shortcut(x)). Saves the convolutions' outputs.
class ResnetBlock final : public Layer {
 public:
  ResnetBlock(const ResnetBlockShape& place, UnitBuilder builder)
      : Layer(place.name),
        dtype_(builder.precision().compute),
        unit_(builder.add_unit(name())),
        statistics_(builder.add_unit(name() + ".statistics", batch_norm_momentum)),
        reduce_(add(builder,
                    {.name = ".conv1", .norm = ".bn1", .in = place.in, .out = place.inner, .size = place.size})),
        spatial_(add(builder, {.name = ".conv2",
                               .norm = ".bn2",
                               .in = place.inner,
                               .out = place.inner,
                               .size = place.size,
                               .kernel = 3,
                               .stride = place.stride})),
        expand_(add(
            builder,
            {.name = ".conv3", .norm = ".bn3", .in = place.inner, .out = place.out, .size = spatial_.out_size()})),
        projection_(project(builder, place)) {
    set_units(std::move(builder).units());
  }

  double flops_per_sample(int) const override {
    const auto flops = [](const NormedConvolution& each) { return each.flops_per_sample(); };
    return flops(reduce_) + flops(spatial_) + flops(expand_) + (projection_ ? flops(*projection_) : 0);
  }

  std::size_t output_elements(int) const override { return expand_.out_rows(1) * expand_.out(); }

  bool repeats(bool training) const noexcept override {
    const bool averages =
        reduce_.averages() || spatial_.averages() || expand_.averages() || (projection_ && projection_->averages());
    return !training || !averages;
  }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const work = call.workspace, *const scratch = work + at.scratch;
    std::byte* const reduced = saved_or(call, at.reduce.y, work + at.wide);
    std::byte* const seen = saved_or(call, at.spatial.y, work + at.wide);
    reduce_.forward(call, at.reduce, reduced, input, scratch, {});
    spatial_.forward(call, at.spatial, seen, reduced, scratch, {});
    const std::byte* shortcut = input;
    if (projection_) {
      std::byte* const projected = saved_or(call, at.projection.y, work + at.shortcut);
      projection_->forward(call, at.projection, projected, input, scratch, {.relu = false});
      shortcut = projected;
    }
    expand_.forward(call, at.expand, output, seen, scratch, {.addend = shortcut});
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const work = call.workspace, *const scratch = work + at.scratch;
    std::byte *const d_sum = work + at.d_sum, *const wide = work + at.wide;
    reduce_.keep(call, at.reduce);
    spatial_.keep(call, at.spatial);
    expand_.keep(call, at.expand);
    const std::byte* shortcut = input;
    if (projection_) {
      std::byte* const projected = saved_or(call, at.projection.y, work + at.shortcut);
      projection_->keep(call, at.projection);
      projection_->again(call, at.projection, projected, {.relu = false});
      shortcut = projected;
    }
    expand_.backward_norm(call, at.expand, d_sum, output_gradient, scratch, {.addend = shortcut});
    expand_.backward_input(call, at.expand, wide, scratch);
    spatial_.backward_norm(call, at.spatial, nullptr, wide, scratch, {});
    spatial_.backward_input(call, at.spatial, wide, scratch);
    reduce_.backward_norm(call, at.reduce, nullptr, wide, scratch, {});
    reduce_.backward_input(call, at.reduce, input_gradient, scratch);
    const std::byte* past = d_sum;
    if (projection_) {
      projection_->backward_norm(call, at.projection, nullptr, d_sum, scratch, {.relu = false});
      projection_->backward_input(call, at.projection, work + at.past, scratch);
      past = work + at.past;
    }
    runtime::add(call.stream, input_gradient, past, dtype_, at.reduce.rows * reduce_.in());
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const work = call.workspace, *const scratch = work + at.scratch;
    std::byte* const reduced = saved_or(call, at.reduce.y, work + at.wide);
    std::byte* const seen = saved_or(call, at.spatial.y, work + at.wide);
    reduce_.backward_weight(call, at.reduce, input, scratch);
    reduce_.again(call, at.reduce, reduced, {});
    spatial_.backward_weight(call, at.spatial, reduced, scratch);
    spatial_.again(call, at.spatial, seen, {});
    expand_.backward_weight(call, at.expand, seen, scratch);
    if (projection_) projection_->backward_weight(call, at.projection, input, scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: N input rows, M output rows; C input channels, F inner channels, O output
  /// channels.
  struct Arrays : CallMemory {
    Arrays(const ResnetBlock& block, const MicrobatchShape& shape) {
      const auto samples = static_cast<std::size_t>(shape.samples);
      const std::size_t element = size_of(block.dtype_);
      reduce = block.reduce_.plan(*this, samples, shape.saved);
      spatial = block.spatial_.plan(*this, samples, shape.saved);
      expand = block.expand_.plan(*this, samples);
      wide = workspace.add(reduce.rows * block.reduce_.out(), element);
      d_sum = workspace.add(expand.rows * block.expand_.out(), element);
      std::size_t bytes = std::max({block.reduce_.scratch_bytes(samples), block.spatial_.scratch_bytes(samples),
                                    block.expand_.scratch_bytes(samples)});
      if (block.projection_) {
        projection = block.projection_->plan(*this, samples, shape.saved);
        shortcut = workspace.add(projection.rows * block.projection_->out(), element);
        past = workspace.add(reduce.rows * block.reduce_.in(), element);
        bytes = std::max(bytes, block.projection_->scratch_bytes(samples));
      }
      scratch = workspace.add(1, bytes);
    }

    NormedConvolution::Arrays reduce, spatial, expand, projection;
    std::size_t wide;          ///< workspace [N, F]: input of a convolution, if it is not saved, or its gradient
    std::size_t d_sum;         ///< workspace [M, O]: gradient of the last ReLU's input
    std::size_t shortcut = 0;  ///< workspace [M, O]
    std::size_t past = 0;      ///< workspace [N, C]: input gradient through the shortcut
    std::size_t scratch;       ///< workspace: scratch memory of modules
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name())}; }

  /// Names without the block's.
  NormedConvolution add(UnitBuilder& builder, ConvolutionOptions options) const {
    options.name = name() + options.name;
    options.norm = name() + options.norm;
    return {builder, unit_, statistics_, options};
  }

  /// Shortcut of a block whose input and output differ in shape.
  std::optional<NormedConvolution> project(UnitBuilder& builder, const ResnetBlockShape& place) const {
    if (place.in == place.out && place.stride == 1) return std::nullopt;
    return add(builder, {.name = ".downsample.0",
                         .norm = ".downsample.1",
                         .in = place.in,
                         .out = place.out,
                         .size = place.size,
                         .stride = place.stride});
  }

  runtime::DType dtype_;
  std::size_t unit_, statistics_;  ///< groups of the builder
  NormedConvolution reduce_, spatial_, expand_;
  std::optional<NormedConvolution> projection_;  ///< none: the shortcut is the input
};

}  // namespace

Architecture ResnetOptions::make(const Tuning& tuning) const {
  Architecture model;
  model.name = fmt::format("wide-resnet {} × {}, width {}, images of {} × {}", fmt::join(blocks, "-"), channels,
                           width, image_size, image_size);
  model.positions = 1;
  model.precision = precision;
  const UnitBuilder builder(precision, tuning);  // copied by each layer
  auto stem = std::make_unique<ResnetStem>(*this, builder);
  std::size_t in = static_cast<std::size_t>(channels), size = stem->out_size();
  model.layers.push_back(std::move(stem));
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t of_row = static_cast<std::size_t>(channels) << row;
    for (int block = 0; block < blocks[row]; ++block) {
      const std::size_t stride = block == 0 && row > 0 ? 2 : 1;
      const ResnetBlockShape place{.name = fmt::format("layer{}.{}", row + 1, block),
                                   .in = in,
                                   .inner = of_row * static_cast<std::size_t>(width),
                                   .out = of_row * expansion,
                                   .size = size,
                                   .stride = stride};
      model.layers.push_back(std::make_unique<ResnetBlock>(place, builder));
      in = place.out;
      size = runtime::ceil_divide(size, stride);
    }
  }
  model.layers.push_back(
      make_classification_head({.unit = "fc",
                                .dense = {},
                                .out = "fc",
                                .channels = in,
                                .classes = static_cast<std::size_t>(classes),
                                .pixels = size * size,
                                .initializer = {Initializer::Kind::uniform, 1 / std::sqrt(static_cast<float>(in))}},
                               builder));
  return model;
}

}  // namespace ranvier::models
