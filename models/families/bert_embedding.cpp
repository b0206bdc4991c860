#include "models/families/bert_layers.hpp"
#include "models/modules/block_dropout.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/memory_layout.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

class BertEmbedding final : public Layer {
 public:
  BertEmbedding(const BertOptions& options, const Tuning& tuning) : BertEmbedding(options, UnitBuilder(tuning)) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// One phase per tile of the word table; the last one also does the rest.
  LayerPhases parts() const override {
    if (table_.tiles() == 1) return Layer::parts();
    LayerPhases parts;
    for (std::size_t t = 0; t < table_.tiles(); ++t) parts.forward.push_back({t});
    std::vector<std::size_t> rest;
    for (std::size_t unit = table_.tiles(); unit < units_.size(); ++unit) rest.push_back(unit);
    parts.forward.back().insert(parts.forward.back().end(), rest.begin(), rest.end());
    parts.backward_weight = parts.forward;
    parts.backward_input = {rest};
    return parts;
  }

  /// The layer has no matrix multiplications. Position parameters count as 6 FLOP per parameter and position, which
  /// stands for lookup, norm, update and reduction.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(usable_positions() * table_.channels) * positions;
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * table_.channels;
  }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte* const sum = call.saved + at.sum;
    expect(static_cast<std::size_t>(call.shape.positions) <= usable_positions(),
           "too many positions: {}, but {} has {}", call.shape.positions, units_.back().name, usable_positions());
    const EmbeddingShape shape = embedding_shape(call.shape);
    const auto* const tokens = reinterpret_cast<const std::int32_t*>(input);
    if (table_.tiles() == 1) {
      embedding_forward(call.stream, shape, dtype_, sum, tokens, call.parameters[0],
                        parameter(call, first_position(), dtype_), call.positions);
    } else {
      embedding_tokens_forward(call.stream, shape, dtype_, sum, tokens, call.parameters[call.part],
                               call.part * table_.tile_rows, table_.tile_rows);
      if (!last_tile(call)) return;
      embedding_positions_forward(call.stream, shape, dtype_, sum, parameter(call, first_position(), dtype_),
                                  call.positions);
    }
    // One position each for N samples.
    embedding_positions_forward(call.stream, {rows(call), 1, table_.channels, table_.tokens}, dtype_, sum,
                                parameter(call, types_, dtype_));
    norm_.forward(call, at.norm, output, sum);
    if (call.training) drop(call, output);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    const Arrays at = arrays(call);
    const std::byte* d_normal = output_gradient;
    norm_.keep(call, at.norm);
    if (options_.dropout > 0) {
      std::byte* const dropped = call.workspace + at.dropped;
      runtime::copy(call.stream, dropped, output_gradient, rows(call) * table_.channels * size_of(dtype_));
      drop(call, dropped);
      d_normal = dropped;
    }
    norm_.backward(call, at.norm, call.deferred + at.d_sum, d_normal, call.saved + at.sum, nullptr,
                   call.workspace + at.scratch);
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const runtime::DType dtype = options_.precision.gradient;
    const std::size_t row_bytes = table_.channels * size_of(dtype);
    const std::byte* const d_sum = call.deferred + at.d_sum;
    const bool last = last_tile(call);
    const bool trains_positions = last && is_trained(call, positions_);
    const bool trains_types = last && is_trained(call, types_);
    if (!call.accumulate) {  // rows that no sample uses
      if (trains_positions)
        runtime::fill_zero(call.stream, gradient(call, positions_, dtype), first_row() * row_bytes);
      if (trains_types)
        runtime::fill_zero(call.stream, gradient(call, types_, dtype) + row_bytes,
                           static_cast<std::size_t>(options_.types - 1) * row_bytes);
    }
    std::byte* const d_positions = trains_positions ? gradient(call, first_position(), dtype) : nullptr;
    EmbeddingBackward backward{.tokens_gradient = call.gradients[call.part],
                               .first_row = call.part * table_.tile_rows,
                               .token_rows = table_.tile_rows,
                               .positions_gradient = call.positions == nullptr ? d_positions : nullptr,
                               .position_rows = usable_positions(),
                               .gradient_dtype = dtype,
                               .d_out = d_sum,
                               .tokens = reinterpret_cast<const std::int32_t*>(input),
                               .accumulate = call.accumulate,
                               .order = reinterpret_cast<std::int32_t*>(call.workspace + at.order),
                               .in_order = call.part > 0};
    embedding_backward(call.stream, embedding_shape(call.shape), dtype_, backward);
    if (call.positions != nullptr && trains_positions) {  // sums gradients by row, as for tokens
      backward.tokens_gradient = d_positions;
      backward.first_row = 0;
      backward.token_rows = usable_positions();
      backward.tokens = call.positions;
      backward.in_order = false;
      embedding_backward(call.stream, embedding_shape(call.shape), dtype_, backward);
    }
    if (trains_types)
      column_sums(call.stream, gradient(call, types_, dtype), dtype, d_sum, dtype_, rows(call), table_.channels,
                  call.accumulate);
    if (last) norm_.store_gradients(call, at.norm);
  }

 private:
  /// Parameters in the order of the checkpoint's modules.
  BertEmbedding(const BertOptions& options, UnitBuilder builder)
      : options_(options),
        dtype_(options.precision.compute),
        table_(BertTokenTable(options)),
        unit_(add_units(builder)),
        positions_(add_table(builder, "position_embeddings", options.position_rows(),
                             options.position_rows() - options.first_position() - options.sequence_length)),
        types_(add_table(builder, "token_type_embeddings", options.types)),
        norm_(builder, unit_, bert_prefix(options) + "embeddings.LayerNorm", bert_norm(options)),
        units_(std::move(builder).units()) {}

  /// Units of the word table first, tile by tile.
  std::size_t add_units(UnitBuilder& builder) const {
    for (const UnitSpec& unit : table_.units) builder.add_unit(unit);
    return builder.add_unit(bert_prefix(options_) + "embeddings");
  }

  ParameterRef add_table(UnitBuilder& builder, const char* name, int rows, int undecayed_rows = 0) const {
    return builder.add(unit_, {.name = bert_prefix(options_) + "embeddings." + name + ".weight",
                               .shape = {static_cast<std::size_t>(rows), table_.channels},
                               .initializer = bert_initializer(options_),
                               .decays = true,
                               .undecayed_end = static_cast<std::size_t>(undecayed_rows) * table_.channels});
  }

  /// Offsets of a call's arrays. Letters: N = B·T rows, C channels.
  struct Arrays {
    Arrays(const BertEmbedding& layer, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = layer.table_.channels, element = size_of(layer.dtype_);
      norm = layer.norm_.plan(saved, deferred, N);
      sum = saved.add(N * C, element);
      d_sum = deferred.add(N * C, element);
      order = workspace.add(N, sizeof(std::int32_t));
      dropped = workspace.add(layer.options_.dropout > 0 ? N * C : 0, element);
      scratch = workspace.add(1, layer.norm_.scratch_bytes(N));
    }

    MemoryLayout saved, deferred, workspace;
    Norm::Arrays norm;
    std::size_t sum, d_sum;  ///< saved, deferred [N, C]: sum of the three rows, and its gradient
    std::size_t order;       ///< workspace [N]
    std::size_t dropped;     ///< workspace [N, C]: gradient of the norm's output, with dropout
    std::size_t scratch;     ///< workspace: scratch memory of kernels
  };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

  bool last_tile(const LayerCall& call) const { return call.part + 1 == table_.tiles(); }
  std::size_t first_row() const { return static_cast<std::size_t>(options_.first_position()); }
  std::size_t usable_positions() const { return static_cast<std::size_t>(options_.position_rows()) - first_row(); }
  ParameterRef first_position() const {
    return {positions_.unit, positions_.offset + first_row() * table_.channels};
  }

  EmbeddingShape embedding_shape(const MicrobatchShape& shape) const {
    return {static_cast<std::size_t>(shape.samples), static_cast<std::size_t>(shape.positions), table_.channels,
            table_.tokens};
  }

  void drop(const LayerCall& call, std::byte* values) const {
    dropout(call.stream, values, dtype_, call.shape.samples, output_elements(call.shape.positions),
            make_dropout(options_.dropout, call.key.seed, call.key.step, embedding_dropout_site,
                         call.key.first_sample));
  }

  std::string name_ = "embedding";
  BertOptions options_;
  runtime::DType dtype_;
  TokenTable table_;
  std::size_t unit_;
  ParameterRef positions_, types_;
  Norm norm_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_bert_embedding(const BertOptions& options, const Tuning& tuning) {
  return std::make_unique<BertEmbedding>(options, tuning);
}

}  // namespace ranvier::models
