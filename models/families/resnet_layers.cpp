// The three kinds of layers of a wide residual network: stem, bottleneck block, head.
#include "models/families/resnet.hpp"
#include "models/modules/batch_norm.hpp"
#include "models/modules/convolution.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/linear.hpp"
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
      : dtype_(options.precision.compute),
        unit_(builder.add_unit(name_)),
        statistics_(builder.add_unit(name_ + ".statistics", batch_norm_momentum)),
        convolution_(builder, unit_,
                     {.name = "conv1",
                      .in = colours,
                      .out = static_cast<std::size_t>(options.channels),
                      .size = static_cast<std::size_t>(options.image_size),
                      .kernel = options.small_images() ? std::size_t{3} : std::size_t{7},
                      .stride = options.small_images() ? std::size_t{1} : std::size_t{2},
                      .precision = options.precision}),
        norm_(builder, unit_, statistics_, "bn1", convolution_.out(), options.precision),
        pools_(!options.small_images()),
        units_(std::move(builder).units()) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int) const override { return convolution_.flops_per_sample(); }
  std::size_t output_elements(int) const override { return out_rows(1) * convolution_.out(); }
  [[nodiscard]] std::size_t out_size() const { return pools_ ? pool(1).out_height() : convolution_.out_size(); }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const work = call.workspace, *const scratch = work + at.scratch, *const seen = call.saved + at.seen;
    std::byte* const normal = pools_ ? work + at.wide : output;
    read(call, at, input);
    convolution_.forward(call, seen, work + at.pixels, scratch);
    norm_.forward(call, at.norm, at.rows, normal, seen, scratch, {});
    if (pools_) max_pool_forward(call.stream, pool(call.shape.samples), dtype_, output, places(call, at), normal);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    const Arrays at = arrays(call);
    const std::byte* d_normal = output_gradient;
    norm_.keep(call, at.norm);
    if (pools_) {
      max_pool_backward(call.stream, pool(call.shape.samples), dtype_, call.workspace + at.wide, output_gradient,
                        places(call, at));
      d_normal = call.workspace + at.wide;
    }
    norm_.backward(call, at.norm, at.rows, call.deferred + at.d_seen, nullptr, d_normal, call.saved + at.seen,
                   call.workspace + at.scratch, {});
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const work = call.workspace, *const scratch = work + at.scratch;
    read(call, at, input);
    convolution_.backward_weight(call, work + at.pixels, call.deferred + at.d_seen, scratch);
    norm_.store_gradients(call, at.norm, at.rows, scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: N rows of the convolution's output, C channels.
  struct Arrays : CallMemory {
    Arrays(const ResnetStem& stem, const MicrobatchShape& shape) {
      const auto samples = static_cast<std::size_t>(shape.samples);
      const std::size_t element = size_of(stem.dtype_), C = stem.convolution_.out();
      const std::size_t N = rows = stem.convolution_.out_rows(samples);
      norm = stem.norm_.plan(saved, deferred);
      seen = saved.add(N * C, element);
      places = saved.add(stem.pools_ ? stem.out_rows(samples) * C : 0, 1);
      d_seen = deferred.add(N * C, element);
      pixels = workspace.add(stem.convolution_.in_rows(samples) * colours, element);
      wide = workspace.add(stem.pools_ ? N * C : 0, element);
      scratch =
          workspace.add(1, std::max(stem.convolution_.scratch_bytes(samples), stem.norm_.scratch_bytes(rows)));
    }

    std::size_t rows;  ///< N
    BatchNorm::Arrays norm;
    std::size_t seen;     ///< saved [N, C]: the convolution's output
    std::size_t places;   ///< saved, a byte per output element: position of the pool's maximum
    std::size_t d_seen;   ///< deferred [N, C]: the gradient of `seen`
    std::size_t pixels;   ///< workspace [B, S, S, 3]
    std::size_t wide;     ///< workspace [N, C]: the pool's input, or its gradient
    std::size_t scratch;  ///< workspace: scratch memory of modules
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name_)}; }

  void read(const LayerCall& call, const Arrays& at, const std::byte* input) const {
    read_pixels(call.stream, static_cast<std::size_t>(call.shape.samples), convolution_.in_rows(1), dtype_,
                call.workspace + at.pixels, reinterpret_cast<const std::uint8_t*>(input));
  }

  PatchShape pool(int samples) const {
    return {.samples = static_cast<std::size_t>(samples),
            .height = convolution_.out_size(),
            .width = convolution_.out_size(),
            .channels = convolution_.out(),
            .kernel = 3,
            .stride = 2,
            .padding = 1};
  }
  std::size_t out_rows(std::size_t samples) const { return samples * out_size() * out_size(); }
  static std::uint8_t* places(const LayerCall& call, const Arrays& at) {
    return reinterpret_cast<std::uint8_t*>(call.saved + at.places);
  }

  std::string name_ = "stem";
  runtime::DType dtype_;
  std::size_t unit_, statistics_;  ///< groups of the builder
  Convolution convolution_;
  BatchNorm norm_;
  bool pools_;
  std::vector<UnitSpec> units_;
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

/// Shortcut of a block whose input and output differ in shape.
struct Projection {
  Convolution convolution;
  BatchNorm norm;
};

/// relu(norm(1 × 1(relu(norm(3 × 3(relu(norm(1 × 1(x)))))))) + shortcut(x)). Saves the convolutions' outputs.
class ResnetBlock final : public Layer {
 public:
  ResnetBlock(const ResnetBlockShape& place, const Precision& precision, UnitBuilder builder)
      : name_(place.name),
        dtype_(precision.compute),
        unit_(builder.add_unit(name_)),
        statistics_(builder.add_unit(name_ + ".statistics", batch_norm_momentum)),
        reduce_(builder, unit_, options(precision, ".conv1", place.size, place.in, place.inner, 1, 1)),
        norm_1_(norm(builder, ".bn1", place.inner, precision)),
        spatial_(builder, unit_,
                 options(precision, ".conv2", place.size, place.inner, place.inner, 3, place.stride)),
        norm_2_(norm(builder, ".bn2", place.inner, precision)),
        expand_(builder, unit_, options(precision, ".conv3", spatial_.out_size(), place.inner, place.out, 1, 1)),
        norm_3_(norm(builder, ".bn3", place.out, precision)),
        projection_(project(builder, place, precision)),
        units_(std::move(builder).units()) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  double flops_per_sample(int) const override {
    return reduce_.flops_per_sample() + spatial_.flops_per_sample() + expand_.flops_per_sample() +
           (projection_ ? projection_->convolution.flops_per_sample() : 0);
  }

  std::size_t output_elements(int) const override { return expand_.out_rows(1) * expand_.out(); }

  bool repeats(bool training) const noexcept override {
    const bool averages = norm_1_.averages() || norm_2_.averages() || norm_3_.averages() ||
                          (projection_ && projection_->norm.averages());
    return !training || !averages;
  }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const work = call.workspace, *const scratch = work + at.scratch;
    std::byte* const normed_1 = BatchNorm::output(call, at.norm_1, work + at.wide);
    std::byte* const normed_2 = BatchNorm::output(call, at.norm_2, work + at.wide);
    reduce_.forward(call, saved + at.reduced, input, scratch);
    norm_1_.forward(call, at.norm_1, at.in_rows, normed_1, saved + at.reduced, scratch, {});
    spatial_.forward(call, saved + at.seen, normed_1, scratch);
    norm_2_.forward(call, at.norm_2, at.out_rows, normed_2, saved + at.seen, scratch, {});
    expand_.forward(call, saved + at.expanded, normed_2, scratch);
    const std::byte* shortcut = input;
    if (projection_) {
      projection_->convolution.forward(call, saved + at.projected, input, scratch);
      std::byte* const projected = BatchNorm::output(call, at.projection, work + at.shortcut);
      projection_->norm.forward(call, at.projection, at.out_rows, projected, saved + at.projected, scratch,
                                {.relu = false});
      shortcut = projected;
    }
    norm_3_.forward(call, at.norm_3, at.out_rows, output, saved + at.expanded, scratch, {.addend = shortcut});
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    std::byte *const scratch = work + at.scratch, *const d_sum = work + at.d_sum, *const wide = work + at.wide;
    for (const auto& [norm, place] : norms(at)) norm->keep(call, place);
    const std::byte* shortcut = input;
    if (projection_) {
      std::byte* const projected = BatchNorm::output(call, at.projection, work + at.shortcut);
      projection_->norm.again(call, at.projection, at.out_rows, projected, saved + at.projected, {.relu = false});
      shortcut = projected;
    }
    norm_3_.backward(call, at.norm_3, at.out_rows, kept + at.d_expanded, d_sum, output_gradient,
                     saved + at.expanded, scratch, {.addend = shortcut});
    expand_.backward_input(call, wide, kept + at.d_expanded, scratch);
    norm_2_.backward(call, at.norm_2, at.out_rows, kept + at.d_seen, nullptr, wide, saved + at.seen, scratch, {});
    spatial_.backward_input(call, wide, kept + at.d_seen, scratch);
    norm_1_.backward(call, at.norm_1, at.in_rows, kept + at.d_reduced, nullptr, wide, saved + at.reduced, scratch,
                     {});
    if (projection_)
      projection_->norm.backward(call, at.projection, at.out_rows, kept + at.d_projected, nullptr, d_sum,
                                 saved + at.projected, scratch, {.relu = false});
    reduce_.backward_input(call, input_gradient, kept + at.d_reduced, scratch);
    const std::byte* past = d_sum;
    if (projection_) {
      projection_->convolution.backward_input(call, work + at.past, kept + at.d_projected, scratch);
      past = work + at.past;
    }
    runtime::add(call.stream, input_gradient, past, dtype_, at.in_rows * reduce_.in());
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    std::byte* const scratch = work + at.scratch;
    std::byte* const normed_1 = BatchNorm::output(call, at.norm_1, work + at.wide);
    std::byte* const normed_2 = BatchNorm::output(call, at.norm_2, work + at.wide);
    reduce_.backward_weight(call, input, kept + at.d_reduced, scratch);
    norm_1_.again(call, at.norm_1, at.in_rows, normed_1, saved + at.reduced, {});
    spatial_.backward_weight(call, normed_1, kept + at.d_seen, scratch);
    norm_2_.again(call, at.norm_2, at.out_rows, normed_2, saved + at.seen, {});
    expand_.backward_weight(call, normed_2, kept + at.d_expanded, scratch);
    if (projection_) projection_->convolution.backward_weight(call, input, kept + at.d_projected, scratch);
    norm_1_.store_gradients(call, at.norm_1, at.in_rows, scratch);
    norm_2_.store_gradients(call, at.norm_2, at.out_rows, scratch);
    norm_3_.store_gradients(call, at.norm_3, at.out_rows, scratch);
    if (projection_) projection_->norm.store_gradients(call, at.projection, at.out_rows, scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: N input rows, M output rows; C input channels, F inner channels, O output
  /// channels.
  struct Arrays : CallMemory {
    Arrays(const ResnetBlock& block, const MicrobatchShape& shape) {
      const auto samples = static_cast<std::size_t>(shape.samples);
      const std::size_t element = size_of(block.dtype_), C = block.reduce_.in(), F = block.reduce_.out();
      const std::size_t O = block.expand_.out();
      const std::size_t N = in_rows = block.spatial_.in_rows(samples);
      const std::size_t M = out_rows = block.spatial_.out_rows(samples);
      norm_1 = block.norm_1_.plan(saved, deferred, N, shape.saved);
      norm_2 = block.norm_2_.plan(saved, deferred, M, shape.saved);
      norm_3 = block.norm_3_.plan(saved, deferred);
      reduced = saved.add(N * F, element);
      seen = saved.add(M * F, element);
      expanded = saved.add(M * O, element);
      d_reduced = deferred.add(N * F, element);
      d_seen = deferred.add(M * F, element);
      d_expanded = deferred.add(M * O, element);
      wide = workspace.add(N * F, element);
      d_sum = workspace.add(M * O, element);
      std::size_t bytes = std::max({block.spatial_.scratch_bytes(samples), block.norm_1_.scratch_bytes(N),
                                    block.norm_2_.scratch_bytes(M), block.norm_3_.scratch_bytes(M)});
      if (block.projection_) {
        projection = block.projection_->norm.plan(saved, deferred, M, shape.saved);
        projected = saved.add(M * O, element);
        d_projected = deferred.add(M * O, element);
        shortcut = workspace.add(M * O, element);
        past = workspace.add(N * C, element);
        bytes = std::max(bytes, block.projection_->convolution.scratch_bytes(samples));
      }
      scratch = workspace.add(1, bytes);
    }

    std::size_t in_rows, out_rows;  ///< N, M
    BatchNorm::Arrays norm_1, norm_2, norm_3, projection{};
    std::size_t reduced, seen, expanded;        ///< saved [N, F], [M, F], [M, O]: outputs of the convolutions
    std::size_t projected = 0;                  ///< saved [M, O]: output of the shortcut's convolution
    std::size_t d_reduced, d_seen, d_expanded;  ///< deferred: their gradients
    std::size_t d_projected = 0;
    std::size_t wide;          ///< workspace [N, F]: input of a convolution, if it is not saved, or its gradient
    std::size_t d_sum;         ///< workspace [M, O]: gradient of the last ReLU's input
    std::size_t shortcut = 0;  ///< workspace [M, O]
    std::size_t past = 0;      ///< workspace [N, C]: input gradient through the shortcut
    std::size_t scratch;       ///< workspace: scratch memory of modules
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name_)}; }

  std::vector<std::pair<const BatchNorm*, BatchNorm::Arrays>> norms(const Arrays& at) const {
    std::vector<std::pair<const BatchNorm*, BatchNorm::Arrays>> all{
        {&norm_1_, at.norm_1}, {&norm_2_, at.norm_2}, {&norm_3_, at.norm_3}};
    if (projection_) all.emplace_back(&projection_->norm, at.projection);
    return all;
  }

  ConvolutionOptions options(const Precision& precision, const char* name, std::size_t size, std::size_t in,
                             std::size_t out, std::size_t kernel, std::size_t stride) const {
    return {.name = name_ + name,
            .in = in,
            .out = out,
            .size = size,
            .kernel = kernel,
            .stride = stride,
            .precision = precision};
  }

  BatchNorm norm(UnitBuilder& builder, const char* name, std::size_t channels, const Precision& precision) const {
    return {builder, unit_, statistics_, name_ + name, channels, precision};
  }

  std::optional<Projection> project(UnitBuilder& builder, const ResnetBlockShape& place,
                                    const Precision& precision) const {
    if (place.in == place.out && place.stride == 1) return std::nullopt;
    Convolution convolution(builder, unit_,
                            options(precision, ".downsample.0", place.size, place.in, place.out, 1, place.stride));
    return Projection{std::move(convolution), norm(builder, ".downsample.1", place.out, precision)};
  }

  std::string name_;
  runtime::DType dtype_;
  std::size_t unit_, statistics_;  ///< groups of the builder
  Convolution reduce_;
  BatchNorm norm_1_;
  Convolution spatial_;
  BatchNorm norm_2_;
  Convolution expand_;
  BatchNorm norm_3_;
  std::optional<Projection> projection_;  ///< none: the shortcut is the input
  std::vector<UnitSpec> units_;
};

/// Average pooling, linear layer and cross entropy.
class ResnetHead final : public Layer {
 public:
  ResnetHead(const ResnetOptions& options, std::size_t in, std::size_t size, UnitBuilder builder)
      : dtype_(options.precision.compute),
        pixels_(size * size),
        product_(builder, builder.add_unit("fc"),
                 {.tensors = {{"fc", static_cast<std::size_t>(options.classes)}},
                  .in = in,
                  .bias = true,
                  .initializer = {Initializer::Kind::uniform, 1 / std::sqrt(static_cast<float>(in))},
                  .precision = options.precision}),
        units_(std::move(builder).units()) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }
  double flops_per_sample(int) const override {
    return 6.0 * static_cast<double>((product_.in() + 1) * product_.out());
  }
  std::size_t output_elements(int) const override { return 0; }
  bool counts_correct() const noexcept override { return true; }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    const Arrays at = arrays(call);
    mean_pool_forward(call.stream, pool(call), dtype_, call.saved + at.mean, input);
    product_.forward(call, call.saved + at.logits, call.saved + at.mean);
    compute_losses(call, {at.rows, product_.out(), product_.out()}, dtype_, call.saved + at.logits, at.row_losses,
                   at.exponentials);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte*,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    product_.backward_input(call, call.workspace + at.d_mean, call.saved + at.logits);
    mean_pool_backward(call.stream, pool(call), dtype_, input_gradient, call.workspace + at.d_mean);
  }

  void backward_weight(const LayerCall& call, const std::byte*) override {
    const Arrays at = arrays(call);
    product_.backward_weight(call, call.saved + at.mean, call.saved + at.logits, call.workspace + at.scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: B samples, C channels, V classes.
  struct Arrays : CallMemory {
    Arrays(const ResnetHead& head, const MicrobatchShape& shape) {
      const std::size_t element = size_of(head.dtype_), C = head.product_.in(), V = head.product_.out();
      const std::size_t B = rows = static_cast<std::size_t>(shape.samples);
      mean = saved.add(B * C, element);
      logits = saved.add(B * V, element);
      d_mean = workspace.add(B * C, element);
      row_losses = workspace.add(B, sizeof(double));
      exponentials = workspace.add(static_cast<std::size_t>(shape.threads) * V, sizeof(float));
      scratch = workspace.add(1, head.product_.scratch_bytes(B));
    }

    std::size_t rows;        ///< B
    std::size_t mean;        ///< saved [B, C]
    std::size_t logits;      ///< saved [B, V]; after forward in training, their gradients
    std::size_t d_mean;      ///< workspace [B, C]
    std::size_t row_losses;  ///< workspace [B] double
    std::size_t exponentials;
    std::size_t scratch;
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name_)}; }

  MeanPoolShape pool(const LayerCall& call) const {
    return {.samples = static_cast<std::size_t>(call.shape.samples), .pixels = pixels_, .channels = product_.in()};
  }

  std::string name_ = "head";
  runtime::DType dtype_;
  std::size_t pixels_;
  Linear product_;
  std::vector<UnitSpec> units_;
};

}  // namespace

Architecture ResnetOptions::make(const Tuning& tuning) const {
  Architecture model;
  model.name = fmt::format("wide-resnet {} × {}, width {}, images of {} × {}", fmt::join(blocks, "-"), channels,
                           width, image_size, image_size);
  model.positions = 1;
  model.precision = precision;
  auto stem = std::make_unique<ResnetStem>(*this, UnitBuilder(tuning));
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
      model.layers.push_back(std::make_unique<ResnetBlock>(place, precision, UnitBuilder(tuning)));
      in = place.out;
      size = runtime::ceil_divide(size, stride);
    }
  }
  model.layers.push_back(std::make_unique<ResnetHead>(*this, in, size, UnitBuilder(tuning)));
  return model;
}

}  // namespace ranvier::models
