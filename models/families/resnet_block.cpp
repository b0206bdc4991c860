#include "models/families/resnet_layers.hpp"
#include "models/modules/batch_norm.hpp"
#include "models/modules/convolution.hpp"
#include "models/modules/layer_call.hpp"
#include "models/ops/memory_layout.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

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

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

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
  struct Arrays {
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

    MemoryLayout saved, deferred, workspace;
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

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

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

}  // namespace

std::unique_ptr<Layer> make_resnet_block(const ResnetBlockShape& place, const Precision& precision,
                                         const Tuning& tuning) {
  return std::make_unique<ResnetBlock>(place, precision, UnitBuilder(tuning));
}

}  // namespace ranvier::models
