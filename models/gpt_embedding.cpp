#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <array>

namespace ranvier::models {
namespace {

class GptEmbedding final : public Layer {
 public:
  explicit GptEmbedding(const GptOptions& options)
      : options_(options),
        channels_(static_cast<std::size_t>(options.hidden)),
        units_{gpt_token_table(options),
               {"wpe",
                {{"wpe.weight",
                  {static_cast<std::size_t>(options.sequence_length), channels_},
                  {Initializer::Kind::normal, 0.02f},
                  true}}}} {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// No products; but its parameters count in the customary 6 per parameter and position, and stand for the
  /// time that their lookup, update and reduction take.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(units_[1].parameters[0].elements()) * positions;
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
    embedding_forward(call.stream, embedding_shape(call.shape), options_.precision.compute, output,
                      reinterpret_cast<const std::int32_t*>(input), call.parameters[0], call.parameters[1]);
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
                       {.tokens_gradient = call.gradients[0],
                        .token_rows = gpt_stored_rows(options_),
                        .positions_gradient = call.gradients[1],
                        .position_rows = static_cast<std::size_t>(options_.sequence_length),
                        .gradient_dtype = options_.precision.gradient,
                        .d_out = call.deferred,
                        .tokens = reinterpret_cast<const std::int32_t*>(input),
                        .accumulate = call.accumulate,
                        .order = reinterpret_cast<std::int32_t*>(call.workspace)});
  }

 private:
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
  std::array<UnitSpec, 2> units_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options) {
  return std::make_unique<GptEmbedding>(options);
}

}  // namespace ranvier::models
