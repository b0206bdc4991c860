// Layers that save all activations give the bits of layers that recompute some.
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr int samples = 3;
constexpr std::pair<Precision, int> variants[] = {
    {Precision{}, 1}, {Precision{}, 2}, {Precision{DType::bf16, DType::f32}, 1}};  // and tiles

std::size_t saved_bytes(const Architecture& model, SavedActivations saved) {
  std::size_t bytes = 0;
  for (const auto& layer : model.layers) bytes += layer->memory({samples, model.positions, 2, saved}).saved;
  return bytes;
}

template <typename Options>
void check_modes(const Options& options, const ReferenceSamples& batch, const Tuning& tuning = {}) {
  ModelRun few(device_of(2, true), options, samples, tuning, SavedActivations::few),
      all(device_of(2, true), options, samples, tuning, SavedActivations::all);
  for (const bool accumulate : {false, true}) {
    CHECK(few.forward(batch, 0.01) == all.forward(batch, 0.01));
    few.backward(accumulate);
    all.backward(accumulate);
  }
  for (std::size_t unit = 0; unit < few.gradients().size(); ++unit) {
    CAPTURE(few.gradients()[unit].first.name);
    CHECK(same_bits(few.gradients()[unit].second, all.gradients()[unit].second));
  }
  const Architecture model = make_model(options, tuning);
  CHECK(saved_bytes(model, SavedActivations::all) > saved_bytes(model, SavedActivations::few));
}

template <typename Options>
void check_tiled(Options options, const std::pair<Precision, int>& variant, const Tuning& tuning = {}) {
  options.precision = variant.first;
  options = in_tiles(options, variant.second);
  check_modes(options, made_up_samples(options, 3, samples), tuning);
}

}  // namespace

TEST_CASE("a GPT that saves all activations has the bits of one that recomputes some") {
  tests::Share share(on_gpu_here() ? 2 : 1, 3);
  for (const auto& variant : variants)
    for (const float dropout : {0.0f, 0.3f}) {
      const GptOptions options = small_gpt(dropout);
      if (share.takes()) check_tiled(options, variant);
      if (!share.takes()) continue;
      check_tiled(options, variant,
                  with_adapters({.rank = 3, .dropout = dropout, .targets = {"c_attn", "c_proj", "c_fc"}}));
    }
}

TEST_CASE("a LLaMA that saves all activations has the bits of one that recomputes some") {
  tests::Share share(on_gpu_here() ? 2 : 1, 3);
  for (const auto& variant : variants) {
    for (const auto& [name, options] : family()) {
      if (!share.takes()) continue;
      CAPTURE(name);
      check_tiled(options, variant);
    }
    check_tiled(small_llama(), variant, with_adapters({.rank = 3, .targets = {"q_proj", "up_proj", "down_proj"}}));
  }
}

TEST_CASE("a BERT that saves all activations has the bits of one that recomputes some") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [name, options] : bert_family({dtype, DType::f32})) {
      CAPTURE(name);
      check_modes(options, made_up_samples(options, 3, samples));
    }
}

TEST_CASE("a residual network that saves all activations has the bits of one that recomputes some") {
  const ResnetOptions options = resnet_family().front().second;
  check_modes(options, made_up_samples(options, 3, samples));
}
