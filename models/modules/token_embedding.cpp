#include "models/modules/language_model.hpp"
#include "models/modules/layer_call.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

class TokenEmbedding final : public Layer {
 public:
  TokenEmbedding(const TokenEmbeddingOptions& options, UnitBuilder builder)
      : Layer("embedding"),
        options_(options),
        dtype_(builder.precision().compute),
        gradient_dtype_(builder.precision().gradient) {
    for (const UnitSpec& unit : options_.table.units) builder.add_unit(unit);
    const std::size_t unit = builder.add_unit(options.unit);
    // In the order of the checkpoint's modules.
    if (options.positions) {
      positions_ = builder.add(unit, *options.positions);
      usable_positions_ = options.positions->shape.at(0) - options.first_position;
    }
    if (options.types) types_ = builder.add(unit, *options.types);
    if (!options.norm_name.empty()) norm_.emplace(builder, unit, options.norm_name, options.norm);
    set_units(std::move(builder).units());
  }

  /// One phase per tile of the token table; the last one also does the rest.
  LayerPhases parts() const override {
    if (options_.table.tiles() == 1) return Layer::parts();
    LayerPhases parts;
    for (std::size_t t = 0; t < options_.table.tiles(); ++t) parts.forward.push_back({t});
    std::vector<std::size_t> rest;
    for (std::size_t unit = options_.table.tiles(); unit < units().size(); ++unit) rest.push_back(unit);
    parts.forward.back().insert(parts.forward.back().end(), rest.begin(), rest.end());
    parts.backward_weight = parts.forward;
    parts.backward_input = {norm_ ? rest : std::vector<std::size_t>()};
    return parts;
  }

  /// No matrix multiplications. Parameters of positions count 6 FLOPs per parameter and position, as is customary, to
  /// stand for the time of lookup, norm, update and reduction.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(usable_positions_ * options_.table.channels) * positions;
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * options_.table.channels;
  }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(!keeps_d_sum()); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    expect(!positions_ || static_cast<std::size_t>(call.shape.positions) <= usable_positions_,
           "too many positions: {}, but {} has {}", call.shape.positions, units().back().name, usable_positions_);
    const EmbeddingShape shape = embedding_shape(call.shape);
    std::byte* const sum = norm_ ? call.saved + at.sum : output;
    const bool is_whole = options_.table.tiles() == 1;
    const std::byte* const places =
        positions_ && last_tile(call) ? parameter(call, first_position(), dtype_) : nullptr;
    embedding_forward(call.stream, shape, dtype_,
                      {.out = sum,
                       .tokens = reinterpret_cast<const std::int32_t*>(input),
                       .tokens_table = call.parameters[call.part],
                       .positions_table = is_whole ? places : nullptr,
                       .positions = call.positions,
                       .first_row = call.part * options_.table.tile_rows,
                       .token_rows = options_.table.tile_rows});
    if (!last_tile(call)) return;
    if (!is_whole && positions_)
      embedding_forward(call.stream, shape, dtype_,
                        {.out = sum, .positions_table = places, .positions = call.positions});
    if (types_)  // one position each for N samples
      embedding_forward(call.stream, {rows(call), 1, options_.table.channels, options_.table.tokens}, dtype_,
                        {.out = sum, .positions_table = parameter(call, *types_, dtype_)});
    if (norm_) norm_->forward(call, at.norm, output, sum);
    if (call.training) drop(call, output);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    const Arrays at = arrays(call);
    std::byte* const d_sum = call.deferred + at.d_sum;
    const std::byte* d_output = output_gradient;
    if (norm_) norm_->keep(call, at.norm);
    if (drops()) {
      std::byte* const dropped = norm_ ? call.workspace + at.dropped : d_sum;
      runtime::copy(call.stream, dropped, output_gradient, rows(call) * options_.table.channels * size_of(dtype_));
      drop(call, dropped);
      d_output = dropped;
    }
    if (norm_)
      norm_->backward(call, at.norm, d_sum, d_output, call.saved + at.sum, nullptr, call.workspace + at.scratch);
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const std::size_t row_bytes = options_.table.channels * size_of(gradient_dtype_);
    const std::byte* const d_sum = keeps_d_sum() ? call.deferred + at.d_sum : call.output_gradient;
    const bool last = last_tile(call);
    const bool trains_positions = last && positions_ && is_trained(call, *positions_);
    const bool trains_types = last && types_ && is_trained(call, *types_);
    if (!call.accumulate) {  // rows that no sample uses
      if (trains_positions && options_.first_position > 0)
        runtime::fill_zero(call.stream, gradient(call, *positions_, gradient_dtype_),
                           options_.first_position * row_bytes);
      if (trains_types)
        runtime::fill_zero(call.stream, gradient(call, *types_, gradient_dtype_) + row_bytes,
                           (options_.types->shape.at(0) - 1) * row_bytes);
    }
    std::byte* const d_positions = trains_positions ? gradient(call, first_position(), gradient_dtype_) : nullptr;
    EmbeddingBackward backward{.tokens_gradient = call.gradients[call.part],
                               .first_row = call.part * options_.table.tile_rows,
                               .token_rows = options_.table.tile_rows,
                               .positions_gradient = call.positions == nullptr ? d_positions : nullptr,
                               .position_rows = usable_positions_,
                               .gradient_dtype = gradient_dtype_,
                               .d_out = d_sum,
                               .tokens = reinterpret_cast<const std::int32_t*>(input),
                               .accumulate = call.accumulate,
                               .order = reinterpret_cast<std::int32_t*>(call.workspace + at.order),
                               .in_order = call.part > 0};
    embedding_backward(call.stream, embedding_shape(call.shape), dtype_, backward);
    if (call.positions != nullptr && trains_positions) {  // sums gradients by row, as for tokens
      backward.tokens_gradient = d_positions;
      backward.first_row = 0;
      backward.token_rows = usable_positions_;
      backward.tokens = call.positions;
      backward.in_order = false;
      embedding_backward(call.stream, embedding_shape(call.shape), dtype_, backward);
    }
    if (trains_types)
      column_sums(call.stream, gradient(call, *types_, gradient_dtype_), gradient_dtype_, d_sum, dtype_, rows(call),
                  options_.table.channels, call.accumulate);
    if (last && norm_) norm_->store_gradients(call, at.norm);
  }

 private:
  /// Offsets of a call's arrays. Letters: N = B·T rows, C channels.
  struct Arrays : CallMemory {
    Arrays(const TokenEmbedding& layer, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = layer.options_.table.channels, element = size_of(layer.dtype_);
      d_sum = deferred.add(layer.keeps_d_sum() ? N * C : 0, element);
      order = workspace.add(N, sizeof(std::int32_t));
      if (!layer.norm_) return;
      norm = layer.norm_->plan(*this, N);
      sum = saved.add(N * C, element);
      dropped = workspace.add(layer.drops() ? N * C : 0, element);
      scratch = workspace.add(1, layer.norm_->scratch_bytes(N));
    }

    std::size_t d_sum;  ///< deferred [N, C], if keeps_d_sum(): gradient of the sum of rows
    std::size_t order;  ///< workspace [N]
    // With a norm:
    Norm::Arrays norm;
    std::size_t sum = 0;      ///< saved [N, C]: the sum of rows
    std::size_t dropped = 0;  ///< workspace [N, C]: gradient of the norm's output, with dropout
    std::size_t scratch = 0;  ///< workspace: scratch memory of kernels
  };

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name())}; }

  bool drops() const { return options_.dropout > 0; }
  /// Whether the gradient of the sum differs from the output gradient.
  bool keeps_d_sum() const { return norm_ || drops(); }
  bool last_tile(const LayerCall& call) const { return call.part + 1 == options_.table.tiles(); }
  ParameterRef first_position() const {
    return {positions_->unit, positions_->offset + options_.first_position * options_.table.channels};
  }

  EmbeddingShape embedding_shape(const MicrobatchShape& shape) const {
    return {static_cast<std::size_t>(shape.samples), static_cast<std::size_t>(shape.positions),
            options_.table.channels, options_.table.tokens};
  }

  void drop(const LayerCall& call, std::byte* values) const {
    dropout(call.stream, values, dtype_, call.shape.samples, output_elements(call.shape.positions),
            dropout_at(call, options_.dropout, embedding_dropout_site));
  }

  TokenEmbeddingOptions options_;
  runtime::DType dtype_, gradient_dtype_;
  std::optional<ParameterRef> positions_, types_;
  std::size_t usable_positions_ = 0;
  std::optional<Norm> norm_;
};

}  // namespace

std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options, UnitBuilder builder) {
  return std::make_unique<TokenEmbedding>(options, std::move(builder));
}

}  // namespace ranvier::models
