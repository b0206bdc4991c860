#include "models/modules/language_model.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/linear.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/target_rows.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

class LanguageHead final : public Layer {
 public:
  LanguageHead(const LanguageHeadOptions& options, UnitBuilder builder)
      : Layer("head"),
        dtype_(builder.precision().compute),
        gradient_dtype_(builder.precision().gradient),
        table_(options.table),
        unit_(add_units(options, builder)),
        bias_(bias_of(options, builder)),
        transform_(transform_of(options, builder)),
        norm_(builder, unit_, options.norm_name, options.norm),
        targets_(options.targets) {
    set_units(std::move(builder).units());
    expect(targets_ >= 0, "a head for {} targets of a sample", targets_);
  }

  /// One phase per tile; all other parameters are in the first phase. A bias of the logits is used in each forward
  /// phase, the transform also in the last phase of backward_input.
  LayerPhases parts() const override {
    LayerPhases::Units parts;
    for (std::size_t t = 0; t < table_.tiles(); ++t) parts.push_back({t});
    const auto add_rest = [this](std::vector<std::size_t>& part) {
      for (std::size_t rest = table_.tiles(); rest < units().size(); ++rest) part.push_back(rest);
    };
    add_rest(parts.front());
    LayerPhases all{parts, parts, parts};
    for (std::size_t t = 1; bias_ && t < table_.tiles(); ++t) add_rest(all.forward[t]);
    if (transform_ && table_.tiles() > 1) add_rest(all.backward_input.back());
    return all;
  }

  double flops_per_sample(int positions) const override {
    const std::size_t transform = transform_ ? (transform_->in() + 1) * transform_->out() : 0;
    const std::size_t biases = bias_ ? table_.tokens : 0;
    return 6.0 * static_cast<double>(table_.tokens * table_.channels + norm_.parameters() + transform + biases) *
           (targets_ > 0 ? std::min(targets_, positions) : positions);
  }

  std::size_t output_elements(int) const override { return 0; }
  std::size_t vocabulary() const noexcept override { return table_.tokens; }

  LayerMemory memory(MicrobatchShape shape) const override { return arrays_of(shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    const Arrays at = arrays(call);
    const EvalOutputs& details = call.details;
    const TargetRows choice = choice_of(call.shape);
    if (!chooses()) {
      compute_logits(call, at, input);
      if (!last_tile(call)) return;
      compute_losses(call, at);
      if (details.losses != nullptr)
        runtime::copy(call.stream, details.losses, call.workspace + at.row_losses, rows(call) * sizeof(double));
      if (details.logits != nullptr) copy_logits(call, at, static_cast<std::size_t>(details.position));
      return;
    }
    const std::size_t row_bytes = table_.channels * size_of(dtype_);
    if (details.logits != nullptr) {  // computed separately: the position need not be a gathered one
      LayerCall one = with_rows(call, 1, 1);
      one.saved += at.one_saved;
      one.workspace += at.one_workspace;
      const Arrays at_one(*this, {1, 1, 1}, {});
      compute_logits(one, at_one, input + static_cast<std::size_t>(details.position) * row_bytes);
      if (last_tile(call)) copy_logits(one, at_one, 0);
    }
    if (call.part == 0) {
      choose_rows(call.stream, choice, places(call, at), targets(call, at),
                  reinterpret_cast<const std::int32_t*>(call.targets));
      gather_rows(call.stream, choice, call.saved + at.input, input, places(call, at), row_bytes);
    }
    LayerCall chosen = with_rows(call, call.shape.samples, static_cast<int>(choice.chosen));
    chosen.targets = call.saved + at.targets;
    compute_logits(chosen, at, call.saved + at.input);
    if (!last_tile(call)) return;
    compute_losses(chosen, at);
    if (details.losses == nullptr) return;
    scatter_rows(call.stream, choice, call.workspace + at.losses, call.workspace + at.row_losses, places(call, at),
                 sizeof(double));
    runtime::copy(call.stream, details.losses, call.workspace + at.losses, choice.all() * sizeof(double));
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte*,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    if (!chooses()) return compute_input_gradient(call, at, input, input_gradient);
    const TargetRows choice = choice_of(call.shape);
    compute_input_gradient(with_rows(call, call.shape.samples, static_cast<int>(choice.chosen)), at,
                           call.saved + at.input, call.workspace + at.d_input);
    if (input_gradient == nullptr || !last_tile(call)) return;
    scatter_rows(call.stream, choice, input_gradient, call.workspace + at.d_input, places(call, at),
                 table_.channels * size_of(dtype_));
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    if (!chooses()) return compute_weight_gradients(call, at, input);
    compute_weight_gradients(with_rows(call, call.shape.samples, static_cast<int>(choice_of(call.shape).chosen)),
                             at, call.saved + at.input);
  }

 private:
  /// Offsets of a call's arrays. Letters: N rows with logits (B·T, or B·F gathered positions), C channels, P stored
  /// rows of the token table.
  struct Arrays : CallMemory {
    Arrays(const LanguageHead& head, const MicrobatchShape& shape, const TargetRows& choice) {
      const TokenTable& table = head.table_;
      const std::size_t N = choice.chosen > 0 ? choice.rows() : rows(shape);
      const std::size_t C = table.channels, element = size_of(head.dtype_);
      norm = head.norm_.plan(*this, N, shape.saved);
      if (choice.chosen > 0) {
        places = saved.add(N, sizeof(std::int32_t));
        targets = saved.add(N, sizeof(std::int32_t));
        input = saved.add(N * C, element);
        d_input = workspace.add(N * C, element);
        losses = workspace.add(choice.all(), sizeof(double));
        const Arrays one(head, {1, 1, 1}, {});
        one_saved = saved.add(1, one.saved.bytes());
        one_workspace = workspace.add(1, one.workspace.bytes());
      }
      if (head.transform_) {
        product = head.transform_->plan(*this, N);
        dense = saved.add(N * C, element);
        active = saved.add(N * C, element);
        d_dense = deferred.add(N * C, element);
      }
      logits = saved.add(N * table.stored_rows(), element);
      normal = workspace.add(N * C, element);
      row_losses = workspace.add(N, sizeof(double));
      exponentials = workspace.add(static_cast<std::size_t>(shape.threads) * table.stored_rows(), sizeof(float));
      sum = table.tiles() > 1 && element < sizeof(float) ? workspace.add(N * C, sizeof(float)) : normal;
      scratch = workspace.add(1, head.norm_.scratch_bytes(N));
    }

    std::size_t places = 0, targets = 0;  ///< saved [N] int32: positions and targets of gathered rows
    std::size_t input = 0, d_input = 0;   ///< saved, workspace [N, C]: gathered rows of the input, their gradient
    std::size_t losses = 0;  ///< workspace [B, T] double: losses of all positions, if rows are gathered
    std::size_t one_saved = 0, one_workspace = 0;  ///< saved, workspace: arrays for the logits of a single row
    Norm::Arrays norm;
    Linear::Arrays product;             ///< arrays of the transform
    std::size_t dense = 0, active = 0;  ///< saved [N, C]: output of the transform before and after GELU
    std::size_t d_dense = 0;            ///< deferred [N, C]: gradient of `dense`
    std::size_t logits;                 ///< [N, P]; after forward in training, their gradients
    std::size_t normal;                 ///< [N, C]: the norm's output, if it is not saved, or its gradient
    std::size_t row_losses;             ///< [N] double
    std::size_t exponentials;           ///< [threads, P] float
    std::size_t sum;                    ///< [N, C] float: gradient of the norm's output, summed over tiles
    std::size_t scratch;
  };

  bool chooses() const { return targets_ > 0; }

  /// No gathered rows if all positions are computed.
  TargetRows choice_of(const MicrobatchShape& shape) const {
    return {static_cast<std::size_t>(shape.samples), static_cast<std::size_t>(shape.positions),
            static_cast<std::size_t>(std::min(targets_, shape.positions))};
  }

  static std::int32_t* places(const LayerCall& call, const Arrays& at) {
    return reinterpret_cast<std::int32_t*>(call.saved + at.places);
  }
  static std::int32_t* targets(const LayerCall& call, const Arrays& at) {
    return reinterpret_cast<std::int32_t*>(call.saved + at.targets);
  }

  /// Computes logits of the rows of `input`, one per position of the call.
  void compute_logits(const LayerCall& call, const Arrays& at, const std::byte* input) const {
    const std::size_t N = rows(call), C = table_.channels;
    if (transform_ && call.part == 0) {
      transform_->forward(call, call.saved + at.dense, input, at.product);
      gelu_forward(call.stream, dtype_, call.saved + at.active, call.saved + at.dense, N * C, GeluForm::erf);
    }
    std::byte* const normal = saved_or(call, at.norm.y, call.workspace + at.normal);
    if (call.part == 0) norm_.forward(call, at.norm, normal, norm_input(call, at, input));
    matmul(call.stream,
           {.m = N, .n = table_.tile_rows, .k = C, .transpose_b = true, .c_stride = table_.stored_rows()},
           {.c = tile_of_logits(call, at),
            .c_dtype = dtype_,
            .a = normal,
            .b = call.parameters[call.part],
            .dtype = dtype_,
            .bias = bias_ ? parameter(call, {bias_->unit, bias_->offset + call.part * table_.tile_rows}, dtype_)
                          : nullptr});
  }

  void compute_losses(const LayerCall& call, const Arrays& at) const {
    models::compute_losses(call, {rows(call), table_.tokens, table_.stored_rows()}, dtype_, call.saved + at.logits,
                           at.row_losses, at.exponentials);
  }

  /// Copies logits to the call's details.
  void copy_logits(const LayerCall& call, const Arrays& at, std::size_t row) const {
    runtime::cast(call.stream, call.details.logits, runtime::DType::f32,
                  call.saved + at.logits + row * table_.stored_rows() * size_of(dtype_), dtype_, vocabulary());
  }

  void compute_input_gradient(const LayerCall& call, const Arrays& at, const std::byte* input,
                              std::byte* input_gradient) const {
    const std::size_t N = rows(call), C = table_.channels;
    if (call.part == 0) norm_.keep(call, at.norm);
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
    std::byte* const d_norm_input = transform_ ? call.deferred + at.d_dense : input_gradient;
    norm_.backward(call, at.norm, d_norm_input, call.workspace + at.normal, norm_input(call, at, input), nullptr,
                   call.workspace + at.scratch);
    if (!transform_) return;
    gelu_backward(call.stream, dtype_, d_norm_input, call.saved + at.dense, nullptr, N * C, GeluForm::erf);
    transform_->backward_input(call, input_gradient, d_norm_input, at.product);
  }

  void compute_weight_gradients(const LayerCall& call, const Arrays& at, const std::byte* input) const {
    const std::size_t N = rows(call), C = table_.channels;
    if (call.part == 0) norm_.store_gradients(call, at.norm);
    if (bias_ && call.part == 0 && is_trained(call, *bias_))
      column_sums(call.stream, gradient(call, *bias_, gradient_dtype_), gradient_dtype_, call.saved + at.logits,
                  dtype_, N, table_.stored_rows(), call.accumulate);
    if (transform_ && call.part == 0)
      transform_->backward_weight(call, input, call.deferred + at.d_dense, call.workspace + at.scratch, at.product);
    if (call.gradients[call.part] == nullptr) return;  // tiles are frozen together
    std::byte* const normal = saved_or(call, at.norm.y, call.workspace + at.normal);
    if (call.part == 0) norm_.again(call, at.norm, normal, norm_input(call, at, input));
    matmul(call.stream,
           {.m = table_.tile_rows, .n = C, .k = N, .transpose_a = true, .a_stride = table_.stored_rows()},
           {.c = call.gradients[call.part],
            .c_dtype = gradient_dtype_,
            .a = tile_of_logits(call, at),
            .b = normal,
            .dtype = dtype_,
            .accumulate = call.accumulate});
  }

  std::size_t add_units(const LanguageHeadOptions& options, UnitBuilder& builder) const {
    for (const UnitSpec& unit : table_.units) builder.add_unit(unit);
    return builder.add_unit(options.unit.empty() ? options.norm_name : options.unit);
  }

  /// Bias of the logits, as long as a row of them.
  std::optional<ParameterRef> bias_of(const LanguageHeadOptions& options, UnitBuilder& builder) const {
    if (options.bias.empty()) return std::nullopt;
    return builder.add(unit_,
                       {options.bias, {table_.tokens}, {Initializer::Kind::zeros}, false, table_.stored_rows()});
  }

  std::optional<Linear> transform_of(const LanguageHeadOptions& options, UnitBuilder& builder) const {
    if (!options.transform) return std::nullopt;
    return Linear(builder, unit_,
                  {.tensors = {{options.transform->name, table_.channels}},
                   .in = table_.channels,
                   .bias = true,
                   .initializer = options.transform->initializer});
  }

  Arrays arrays(const LayerCall& call) const { return arrays_of(planned_shape(call, name())); }
  Arrays arrays_of(const MicrobatchShape& shape) const { return {*this, shape, choice_of(shape)}; }

  const std::byte* norm_input(const LayerCall& call, const Arrays& at, const std::byte* input) const {
    return transform_ ? call.saved + at.active : input;
  }

  bool last_tile(const LayerCall& call) const { return call.part + 1 == table_.tiles(); }

  std::byte* tile_of_logits(const LayerCall& call, const Arrays& at) const {
    return call.saved + at.logits + call.part * table_.tile_rows * size_of(dtype_);
  }

  runtime::DType dtype_, gradient_dtype_;
  TokenTable table_;
  std::size_t unit_;
  std::optional<ParameterRef> bias_;
  std::optional<Linear> transform_;
  Norm norm_;
  int targets_;  ///< LanguageHeadOptions::targets
};

}  // namespace

std::unique_ptr<Layer> make_language_head(const LanguageHeadOptions& options, UnitBuilder builder) {
  return std::make_unique<LanguageHead>(options, std::move(builder));
}

}  // namespace ranvier::models
