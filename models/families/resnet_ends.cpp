#include "models/families/resnet_layers.hpp"
#include "models/modules/batch_norm.hpp"
#include "models/modules/convolution.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/linear.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/pixels.hpp"
#include "models/ops/pooling.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>
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

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

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
  struct Arrays {
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

    MemoryLayout saved, deferred, workspace;
    std::size_t rows;  ///< N
    BatchNorm::Arrays norm;
    std::size_t seen;     ///< saved [N, C]: the convolution's output
    std::size_t places;   ///< saved, a byte per output element: position of the pool's maximum
    std::size_t d_seen;   ///< deferred [N, C]: the gradient of `seen`
    std::size_t pixels;   ///< workspace [B, S, S, 3]
    std::size_t wide;     ///< workspace [N, C]: the pool's input, or its gradient
    std::size_t scratch;  ///< workspace: scratch memory of modules
  };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

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

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), 0, arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    const Arrays at = arrays(call);
    mean_pool_forward(call.stream, pool(call), dtype_, call.saved + at.mean, input);
    product_.forward(call, call.saved + at.logits, call.saved + at.mean);
    const CrossEntropyShape shape{at.rows, product_.out(), product_.out()};
    const auto* const targets = reinterpret_cast<const std::int32_t*>(call.targets);
    cross_entropy(call.stream, shape, dtype_,
                  {.logits = call.saved + at.logits,
                   .targets = targets,
                   .loss = call.loss,
                   .loss_factor = call.loss_factor,
                   .gradient = call.training,
                   .gradient_factor = static_cast<float>(call.loss_factor * call.loss_scale),
                   .row_losses = reinterpret_cast<double*>(call.workspace + at.row_losses),
                   .exponentials = floats(call.workspace + at.exponentials)});
    if (call.correct != nullptr)
      count_correct(call.stream, shape, dtype_, call.correct, call.saved + at.logits, targets);
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
  struct Arrays {
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

    MemoryLayout saved, workspace;
    std::size_t rows;        ///< B
    std::size_t mean;        ///< saved [B, C]
    std::size_t logits;      ///< saved [B, V]; after forward in training, their gradients
    std::size_t d_mean;      ///< workspace [B, C]
    std::size_t row_losses;  ///< workspace [B] double
    std::size_t exponentials;
    std::size_t scratch;
  };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

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

std::unique_ptr<Layer> make_resnet_stem(const ResnetOptions& options, const Tuning& tuning) {
  return std::make_unique<ResnetStem>(options, UnitBuilder(tuning));
}

std::unique_ptr<Layer> make_resnet_head(const ResnetOptions& options, std::size_t in, std::size_t size,
                                        const Tuning& tuning) {
  return std::make_unique<ResnetHead>(options, in, size, UnitBuilder(tuning));
}

std::size_t resnet_stem_size(const ResnetOptions& options) { return ResnetStem(options, UnitBuilder()).out_size(); }

}  // namespace ranvier::models
