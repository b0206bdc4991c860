// Total cost of a pass's operations, compared with the model's declaration.
#include "tests/models/families.hpp"
#include "tests/doubles/recording_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::WorkKind;

namespace {

constexpr int samples = 3;

/// FLOPs of forward and backward passes of a microbatch.
struct PassFlops {
  double products = 0, attention = 0, others = 0;
  double forward = 0;
};

template <typename Options>
PassFlops measured(const Options& options, const ReferenceSamples& batch) {
  auto device = std::make_unique<tests::RecordingDevice>();
  const tests::RecordingDevice& recorded = *device;
  ModelRun run(std::move(device), options, samples);
  run.forward(batch, 1);
  const std::size_t forward = recorded.work().size();
  run.backward(false);
  PassFlops flops;
  for (std::size_t i = 0; i < recorded.work().size(); ++i) {
    const runtime::WorkCost& cost = recorded.work()[i].cost;
    (cost.kind == WorkKind::product     ? flops.products
     : cost.kind == WorkKind::attention ? flops.attention
                                        : flops.others) += cost.flops;
    if (i < forward) flops.forward += cost.flops;
    if (cost.kind != WorkKind::product) CHECK(cost.shape == runtime::ProductShape{});
    CHECK(cost.bytes > 0);
  }
  CHECK(flops.others == 0);
  return flops;
}

/// Elements of a layer's vectors, norms and biases: they count in FLOPs by parameter count, but in no product.
double vectors_of(const Layer& layer) {
  double elements = 0;
  for (const UnitSpec& unit : layer.units())
    for (const ParameterSpec& parameter : unit.parameters)
      elements += parameter.shape.size() == 1 ? static_cast<double>(parameter.elements()) : 0;
  return elements;
}

/// Padding rows of a stored table of tokens.
double rows_beyond(int tokens) { return std::ceil(tokens / 64.0) * 64 - tokens; }

/// Visible pairs of a query and a key among T positions.
double pairs(int T, int window) {
  double seen = 0;
  for (int i = 0; i < T; ++i) seen += window > 0 ? std::min(i + 1, window) : i + 1;
  return seen;
}

/// Checks a transformer whose attention has C channels for its queries and `pairs` visible pairs; `targets` positions
/// per sample have logits. The products equal the model's declaration, except for vectors, positions and attention;
/// attention counts visible pairs.
void check_transformer(const Architecture& model, const PassFlops& flops, double channels, double pairs, int hidden,
                       int vocabulary, int targets) {
  const double T = model.positions;
  const std::size_t blocks = model.layers.size() - 2;
  double left_out = model.layers.front()->flops_per_sample(model.positions);
  for (std::size_t l = 1; l <= blocks; ++l) left_out += 6 * T * vectors_of(*model.layers[l]);
  left_out += 6 * targets * vectors_of(*model.layers.back());
  left_out -= 6 * targets * rows_beyond(vocabulary) * hidden;
  const double attention = static_cast<double>(blocks) * 12 * channels;
  CHECK(flops.products == doctest::Approx(samples * (model.flops_per_sample() - left_out - attention * T * T)));
  // The model declares six of its seven products: the product for the scores is repeated in the backward pass.
  CHECK(flops.attention == doctest::Approx(samples * attention * pairs * 7 / 6));
  CHECK(flops.forward == doctest::Approx(flops.products / 3 + flops.attention * 2 / 7));
}

}  // namespace

TEST_CASE("the operations of GPT's passes cost what the model declares, with and without tiles") {
  for (const int tile : {1, 2}) {
    CAPTURE(tile);
    GptOptions options{.layers = 2, .hidden = 12, .heads = 3, .vocab_size = 67, .sequence_length = 7, .tile = tile};
    const auto flops = measured(options, made_up_samples(options, 3, samples));
    // Tiles change neither parameters nor their operations.
    options.tile = 1;
    check_transformer(make_gpt(options), flops, 12, pairs(7, 0), 12, 67, 7);
  }
}

TEST_CASE("with all activations saved, no norm and no GELU of a GPT is recomputed") {
  const GptOptions options{.layers = 2, .hidden = 12, .heads = 3, .vocab_size = 67, .sequence_length = 7};
  struct Backward {
    std::size_t norms = 0;
    double activation_bytes = 0;
  };
  const auto backward_of = [&](SavedActivations saved) {
    auto device = std::make_unique<tests::RecordingDevice>();
    tests::RecordingDevice& recorded = *device;
    ModelRun run(std::move(device), options, samples, {}, saved);
    run.forward(made_up_samples(options, 3, samples), 1);
    recorded.clear();
    run.backward(false);
    Backward found;
    for (const auto& [stream, cost] : recorded.work()) {
      if (cost.kind == WorkKind::norm) ++found.norms;
      if (cost.kind == WorkKind::activation) found.activation_bytes += cost.bytes;
    }
    return found;
  };
  const Backward few = backward_of(SavedActivations::few), all = backward_of(SavedActivations::all);
  CHECK(all.norms == 5);  // two of each block, and the head's
  CHECK(few.norms == 2 * all.norms);
  CHECK(all.activation_bytes == 3.0 / 4 * few.activation_bytes);
}

TEST_CASE("the operations of LLaMA's passes cost what the model declares, for each related family") {
  for (const auto& [name, options] : family()) {
    CAPTURE(name);
    const auto flops = measured(options, made_up_samples(options, 3, samples));
    check_transformer(make_llama(options), flops, options.heads * options.stored_head_size(),
                      pairs(options.sequence_length, options.window), options.hidden, options.vocab_size,
                      options.sequence_length);
  }
}

TEST_CASE("the operations of BERT's passes cost what the model declares, for the positions that have logits") {
  for (const auto& [name, options] : bert_family()) {
    CAPTURE(name);
    const auto flops = measured(options, made_up_samples(options, 3, samples));
    const int T = options.sequence_length;
    check_transformer(make_bert(options), flops, options.hidden, T * T, options.hidden, options.vocab_size,
                      options.targets > 0 ? options.targets : T);
  }
}

TEST_CASE("the operations of a residual network's passes cost what it declares, except the images' gradient") {
  const ResnetOptions options = resnet_family().front().second;
  const auto flops = measured(options, made_up_samples(options, 3, samples));
  const Architecture model = make_resnet(options);
  const double of_images = model.layers.front()->flops_per_sample(1) / 3;
  const double of_biases = 6 * 5;
  CHECK(flops.products == doctest::Approx(samples * (model.flops_per_sample() - of_images - of_biases)));
  CHECK(flops.attention == 0);
  CHECK(flops.forward == doctest::Approx(samples * (model.flops_per_sample() - of_biases) / 3));
}
