#include "models/modules/token_embedding.hpp"

#include "models/modules/layer_call.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/memory_layout.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <vector>

namespace ranvier::models {
namespace {

class TokenEmbedding final : public Layer {
 public:
  TokenEmbedding(const TokenEmbeddingOptions& options, const Tuning& tuning)
      : table_(options.table),
        dropout_(options.dropout),
        dropout_site_(options.dropout_site),
        precision_(options.precision) {
    for (const UnitSpec& unit : table_.units) units_.push_back(tuned(unit, tuning));
    if (!options.positions) return;
    position_rows_ = options.positions->parameters.at(0).shape.at(0);
    units_.push_back(tuned(*options.positions, tuning));
  }

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// One phase per tile; positions are in the last one.
  LayerPhases parts() const override {
    if (table_.tiles() == 1) return Layer::parts();
    LayerPhases parts;
    for (std::size_t t = 0; t < table_.tiles(); ++t) parts.forward.push_back({t});
    if (has_positions()) parts.forward.back().push_back(table_.tiles());
    parts.backward_weight = parts.forward;
    parts.backward_input = {{}};
    return parts;
  }

  /// No matrix multiplications. Parameters of positions count 6 FLOPs per parameter and position, as is customary, to
  /// stand for the time of lookup, update and reduction.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(position_rows_ * table_.channels) * positions;
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * table_.channels;
  }

  LayerMemory memory(MicrobatchShape shape) const override {
    MemoryLayout deferred, workspace;
    if (drops()) deferred.add(rows(shape) * table_.channels, size_of(precision_.compute));
    workspace.add(rows(shape), sizeof(std::int32_t));
    return {0, deferred.bytes(), workspace.bytes(), !drops()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    expect(!has_positions() || static_cast<std::size_t>(call.shape.positions) <= position_rows_,
           "{} positions, but {} has {}", call.shape.positions, units_.back().name, position_rows_);
    const EmbeddingShape shape = embedding_shape(call.shape);
    const auto* tokens = reinterpret_cast<const std::int32_t*>(input);
    const runtime::DType dtype = precision_.compute;
    if (table_.tiles() == 1 && has_positions()) {
      embedding_forward(call.stream, shape, dtype, output, tokens, call.parameters[0], call.parameters[1],
                        call.positions);
    } else {
      embedding_tokens_forward(call.stream, shape, dtype, output, tokens, call.parameters[call.part],
                               call.part * table_.tile_rows, table_.tile_rows);
      if (!last_tile(call)) return;
      if (has_positions())
        embedding_positions_forward(call.stream, shape, dtype, output, call.parameters.back(), call.positions);
    }
    if (call.training) drop(call, output);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    if (!drops()) return;
    const std::size_t elements = rows(call.shape) * table_.channels;
    runtime::copy(call.stream, call.deferred, output_gradient, elements * size_of(precision_.compute));
    drop(call, call.deferred);
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const bool positions = last_tile(call) && has_positions();
    std::byte* const d_positions = positions ? call.gradients.back() : nullptr;
    const std::byte* const d_out = drops() ? call.deferred : call.output_gradient;
    embedding_backward(call.stream, embedding_shape(call.shape), precision_.compute,
                       {.tokens_gradient = call.gradients[call.part],
                        .first_row = call.part * table_.tile_rows,
                        .token_rows = table_.tile_rows,
                        .positions_gradient = call.positions == nullptr ? d_positions : nullptr,
                        .position_rows = position_rows_,
                        .gradient_dtype = precision_.gradient,
                        .d_out = d_out,
                        .tokens = reinterpret_cast<const std::int32_t*>(input),
                        .accumulate = call.accumulate,
                        .order = reinterpret_cast<std::int32_t*>(call.workspace),
                        .in_order = call.part > 0});
    if (d_positions == nullptr || call.positions == nullptr) return;
    embedding_backward(call.stream, embedding_shape(call.shape), precision_.compute,
                       {.tokens_gradient = d_positions,
                        .token_rows = position_rows_,
                        .gradient_dtype = precision_.gradient,
                        .d_out = d_out,
                        .tokens = call.positions,
                        .accumulate = call.accumulate,
                        .order = reinterpret_cast<std::int32_t*>(call.workspace)});
  }

 private:
  bool drops() const { return dropout_ > 0; }
  bool has_positions() const { return position_rows_ > 0; }
  bool last_tile(const LayerCall& call) const { return call.part + 1 == table_.tiles(); }

  EmbeddingShape embedding_shape(const MicrobatchShape& shape) const {
    return {static_cast<std::size_t>(shape.samples), static_cast<std::size_t>(shape.positions), table_.channels,
            table_.tokens};
  }

  void drop(const LayerCall& call, std::byte* values) const {
    dropout(call.stream, values, precision_.compute, call.shape.samples, output_elements(call.shape.positions),
            make_dropout(dropout_, call.key.seed, call.key.step, dropout_site_, call.key.first_sample));
  }

  std::string name_ = "embedding";
  TokenTable table_;
  float dropout_;
  std::uint32_t dropout_site_;
  Precision precision_;
  std::size_t position_rows_ = 0;  ///< 0: no positions
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options, const Tuning& tuning) {
  return std::make_unique<TokenEmbedding>(options, tuning);
}

}  // namespace ranvier::models
