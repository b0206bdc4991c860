#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <vector>

namespace ranvier::models {
namespace {

class GptEmbedding final : public Layer {
 public:
  explicit GptEmbedding(const GptOptions& options)
      : options_(options),
        channels_(static_cast<std::size_t>(options.hidden)),
        table_(options),
        units_(table_.units) {
    units_.push_back({"wpe",
                      {{"wpe.weight",
                        {static_cast<std::size_t>(options.sequence_length), channels_},
                        {Initializer::Kind::normal, 0.02f},
                        true}}});
  }

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// A tile after the other, positions with the last.
  LayerParts parts() const override {
    if (table_.tiles() == 1) return Layer::parts();
    LayerParts parts;
    for (std::size_t t = 0; t < table_.tiles(); ++t) parts.forward.push_back({t});
    parts.forward.back().push_back(table_.tiles());
    parts.backward_weight = parts.forward;
    parts.backward_input = {{}};
    return parts;
  }

  /// No products; but its parameters count in the customary 6 per parameter and position, and stand for the
  /// time that their lookup, update and reduction take.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(units_.back().parameters[0].elements()) * positions;
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  LayerMemory memory(MicrobatchShape shape) const override {
    MemoryLayout deferred, workspace;
    deferred.add(rows(shape) * channels_, size_of(options_.precision.compute));
    workspace.add(rows(shape), sizeof(std::int32_t));
    return {0, deferred.bytes(), workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    expect(call.shape.positions <= options_.sequence_length, "{} positions, but wpe has {}", call.shape.positions,
           options_.sequence_length);
    const EmbeddingShape shape = embedding_shape(call.shape);
    const auto* tokens = reinterpret_cast<const std::int32_t*>(input);
    const runtime::DType dtype = options_.precision.compute;
    if (table_.tiles() == 1) {
      embedding_forward(call.stream, shape, dtype, output, tokens, call.parameters[0], call.parameters[1]);
    } else {
      embedding_tokens_forward(call.stream, shape, dtype, output, tokens, call.parameters[call.part],
                               call.part * table_.tile_rows, table_.tile_rows);
      if (!last_tile(call)) return;
      embedding_positions_forward(call.stream, shape, dtype, output, call.parameters.back());
    }
    if (call.training) drop(call, output);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte*) override {
    const std::size_t elements = rows(call.shape) * channels_;
    runtime::copy(call.stream, call.deferred, output_gradient, elements * size_of(options_.precision.compute));
    drop(call, call.deferred);
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    embedding_backward(call.stream, embedding_shape(call.shape), options_.precision.compute,
                       {.tokens_gradient = call.gradients[call.part],
                        .first_row = call.part * table_.tile_rows,
                        .token_rows = table_.tile_rows,
                        .positions_gradient = last_tile(call) ? call.gradients.back() : nullptr,
                        .position_rows = static_cast<std::size_t>(options_.sequence_length),
                        .gradient_dtype = options_.precision.gradient,
                        .d_out = call.deferred,
                        .tokens = reinterpret_cast<const std::int32_t*>(input),
                        .accumulate = call.accumulate,
                        .order = reinterpret_cast<std::int32_t*>(call.workspace),
                        .in_order = call.part > 0});
  }

 private:
  bool last_tile(const LayerCall& call) const { return call.part + 1 == table_.tiles(); }

  static std::size_t rows(const MicrobatchShape& shape) {
    return static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  }

  EmbeddingShape embedding_shape(const MicrobatchShape& shape) const {
    return {static_cast<std::size_t>(shape.samples), static_cast<std::size_t>(shape.positions), channels_,
            static_cast<std::size_t>(options_.vocab_size)};
  }

  void drop(const LayerCall& call, std::byte* values) const {
    dropout(call.stream, values, options_.precision.compute, call.shape.samples,
            output_elements(call.shape.positions),
            make_dropout(options_.dropout, call.key.seed, call.key.step, gpt_embedding_dropout_site,
                         call.key.first_sample));
  }

  GptOptions options_;
  std::string name_ = "embedding";
  std::size_t channels_;
  GptTokenTable table_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options) {
  return std::make_unique<GptEmbedding>(options);
}

}  // namespace ranvier::models
