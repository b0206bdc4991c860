#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <vector>

namespace ranvier::models {
namespace {

/// Where a call's arrays lie. Letters: N = B·T rows, C channels, P stored rows of the token table.
struct Arrays {
  Arrays(const GptOptions& options, const MicrobatchShape& shape) {
    const auto N = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
    const auto C = static_cast<std::size_t>(options.hidden);
    const std::size_t element = size_of(options.precision.compute);
    mean = saved.add(N, sizeof(float));
    rstd = saved.add(N, sizeof(float));
    const GptTokenTable table(options);
    logits = saved.add(N * table.stored_rows(), element);
    sums = deferred.add(2 * C, sizeof(float));
    norm = deferred.add(2 * C, element);
    normal = workspace.add(N * C, element);
    row_losses = workspace.add(N, sizeof(double));
    exponentials = workspace.add(static_cast<std::size_t>(shape.threads) * table.stored_rows(), sizeof(float));
    sum = table.tiles() > 1 && element < sizeof(float) ? workspace.add(N * C, sizeof(float)) : normal;
    scratch = workspace.add(1, layer_norm_workspace_bytes({N, C}));
  }

  MemoryLayout saved, deferred, workspace;
  std::size_t mean, rstd;
  std::size_t logits;        ///< [N, P]; after forward in training, their gradients
  std::size_t sums;          ///< [2, C] float: gradients of the norm's weight and bias
  std::size_t norm;          ///< [2, C]: the norm's weight and bias, for what backward_weight computes again
  std::size_t normal;        ///< [N, C]: the norm's output, or its gradient
  std::size_t row_losses;    ///< [N] double
  std::size_t exponentials;  ///< [threads, P] float
  std::size_t sum;           ///< [N, C] float: of the tiles' parts of the norm's gradient; in fp32 that itself
  std::size_t scratch;
};

class GptHead final : public Layer {
 public:
  explicit GptHead(const GptOptions& options)
      : options_(options),
        dtype_(options.precision.compute),
        channels_(static_cast<std::size_t>(options.hidden)),
        table_(options),
        units_(table_.units) {
    units_.push_back({"ln_f",
                      {{"ln_f.weight", {channels_}, {Initializer::Kind::ones}},
                       {"ln_f.bias", {channels_}, {Initializer::Kind::zeros}}}});
  }

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// A tile after the other, the norm with the first.
  LayerParts parts() const override {
    LayerParts::Units parts;
    for (std::size_t t = 0; t < table_.tiles(); ++t) parts.push_back({t});
    parts.front().push_back(table_.tiles());
    return {parts, parts, parts};
  }

  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>((static_cast<std::size_t>(options_.vocab_size) + 2) * channels_) * positions;
  }

  std::size_t output_elements(int) const override { return 0; }
  std::size_t vocabulary() const noexcept override { return static_cast<std::size_t>(options_.vocab_size); }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(options_, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    expect_planned_threads(call, name_);
    const Arrays at(options_, call.shape);
    const std::size_t N = rows(call), C = channels_;
    if (call.part == 0) {
      layer_norm_forward(call.stream, {N, C}, dtype_,
                         {.y = call.workspace + at.normal,
                          .mean = floats(call.saved + at.mean),
                          .rstd = floats(call.saved + at.rstd),
                          .x = input,
                          .weight = norm_parameter(call, 0),
                          .bias = norm_parameter(call, 1)});
    }
    matmul(call.stream,
           {.m = N, .n = table_.tile_rows, .k = C, .transpose_b = true, .c_stride = table_.stored_rows()},
           {.c = tile_of_logits(call, at),
            .c_dtype = dtype_,
            .a = call.workspace + at.normal,
            .b = call.parameters[call.part],
            .dtype = dtype_});
    if (!last_tile(call)) return;
    cross_entropy(call.stream, {N, static_cast<std::size_t>(options_.vocab_size), table_.stored_rows()}, dtype_,
                  {.logits = call.saved + at.logits,
                   .targets = reinterpret_cast<const std::int32_t*>(call.targets),
                   .loss = call.loss,
                   .loss_factor = call.loss_factor,
                   .gradient = call.training,
                   .gradient_factor = static_cast<float>(call.loss_factor * call.loss_scale),
                   .row_losses = reinterpret_cast<double*>(call.workspace + at.row_losses),
                   .exponentials = floats(call.workspace + at.exponentials)});
    const ForwardDetails& details = call.details;
    if (details.losses != nullptr)
      runtime::copy(call.stream, details.losses, call.workspace + at.row_losses, N * sizeof(double));
    if (details.logits != nullptr) {
      const std::size_t first = static_cast<std::size_t>(details.position) * table_.stored_rows();
      runtime::cast(call.stream, details.logits, runtime::DType::f32,
                    call.saved + at.logits + first * size_of(dtype_), dtype_, vocabulary());
    }
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte*,
                      std::byte* input_gradient) override {
    const Arrays at(options_, call.shape);
    const std::size_t N = rows(call), C = channels_;
    if (call.part == 0) {
      keep_norm_parameters(call.stream, call.deferred + at.norm, norm_parameter(call, 0), norm_parameter(call, 1),
                           C * size_of(dtype_));
    }
    const bool sums_apart = at.sum != at.normal;
    matmul(call.stream, {.m = N, .n = C, .k = table_.tile_rows, .a_stride = table_.stored_rows()},
           {.c = call.workspace + at.sum,
            .c_dtype = sums_apart ? runtime::DType::f32 : dtype_,
            .a = tile_of_logits(call, at),
            .b = call.parameters[call.part],
            .dtype = dtype_,
            .accumulate = call.part > 0});
    if (!last_tile(call)) return;
    if (sums_apart) {
      runtime::cast(call.stream, call.workspace + at.normal, dtype_, call.workspace + at.sum, runtime::DType::f32,
                    N * C);
    }
    layer_norm_backward(call.stream, {N, C}, dtype_,
                        {.dx = input_gradient,
                         .sums = floats(call.deferred + at.sums),
                         .dy = call.workspace + at.normal,
                         .x = input,
                         .mean = floats(call.saved + at.mean),
                         .rstd = floats(call.saved + at.rstd),
                         .weight = call.deferred + at.norm,
                         .workspace = call.workspace + at.scratch});
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at(options_, call.shape);
    const std::size_t N = rows(call), C = channels_;
    const runtime::DType gradient_dtype = options_.precision.gradient;
    if (call.part == 0) {
      layer_norm_again(call.stream, {N, C}, dtype_, call.workspace + at.normal, floats(call.saved + at.mean),
                       floats(call.saved + at.rstd), input, call.deferred + at.norm,
                       call.deferred + at.norm + C * size_of(dtype_));
    }
    matmul(call.stream,
           {.m = table_.tile_rows, .n = C, .k = N, .transpose_a = true, .a_stride = table_.stored_rows()},
           {.c = call.gradients[call.part],
            .c_dtype = gradient_dtype,
            .a = tile_of_logits(call, at),
            .b = call.workspace + at.normal,
            .dtype = dtype_,
            .accumulate = call.accumulate});
    if (call.part == 0) {
      std::byte* const gradients = call.gradients.back();
      store_norm_gradient(call, gradient_dtype, gradients + units_.back().offset(0) * size_of(gradient_dtype),
                          gradients + units_.back().offset(1) * size_of(gradient_dtype),
                          floats(call.deferred + at.sums), C);
    }
  }

 private:
  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

  static std::size_t rows(const LayerCall& call) {
    return static_cast<std::size_t>(call.shape.samples) * static_cast<std::size_t>(call.shape.positions);
  }

  const std::byte* norm_parameter(const LayerCall& call, std::size_t which) const {
    return call.parameters.back() + units_.back().offset(which) * size_of(dtype_);
  }

  bool last_tile(const LayerCall& call) const { return call.part + 1 == table_.tiles(); }

  std::byte* tile_of_logits(const LayerCall& call, const Arrays& at) const {
    return call.saved + at.logits + call.part * table_.tile_rows * size_of(dtype_);
  }

  GptOptions options_;
  runtime::DType dtype_;
  std::string name_ = "head";
  std::size_t channels_;
  GptTokenTable table_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_head(const GptOptions& options) { return std::make_unique<GptHead>(options); }

}  // namespace ranvier::models
