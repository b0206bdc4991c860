#include "models/core/run_layers.hpp"

#include "models/families/bert.hpp"
#include "models/families/gpt.hpp"
#include "tests/models/every_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Number of different values among the first eight floats, none of which may be larger than `most`.
std::size_t different_values(const std::byte* array, float most) {
  const auto* const values = reinterpret_cast<const float*>(array);
  for (int i = 0; i < 8; ++i) CHECK(std::abs(values[i]) <= most);
  return std::set<float>(values, values + 8).size();
}

/// Counts the calls of a layer with its sizes.
class Counted final : public Layer {
 public:
  Counted(const std::string& name, std::size_t width, int& calls)
      : Layer(name, {{name, {{"w", {width}, {}}}}}), width_(width), calls_(calls) {}

  double flops_per_sample(int) const override { return 1; }
  std::size_t output_elements(int positions) const override { return width_ * static_cast<std::size_t>(positions); }
  LayerMemory memory(MicrobatchShape) const override { return {.saved = width_, .deferred = 8, .workspace = 0}; }
  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    CHECK(call.parameters[0] != nullptr);
    CHECK(output != nullptr);
    call.stream.synchronize();
    CHECK(different_values(call.parameters[0], 0.1f) == 8);
    if (name() == "c") CHECK(different_values(input, 1.0f) == 8);  // not in the first layer, which takes tokens
    ++calls_;
  }
  void backward_input(const LayerCall&, const std::byte*, const std::byte*, std::byte*) override { ++calls_; }
  void backward_weight(const LayerCall& call, const std::byte*) override {
    CHECK(call.gradients[0] != nullptr);
    ++calls_;
  }

 private:
  std::size_t width_;
  int& calls_;
};

/// Microbatches of two samples of eight tokens.
void run_on_one_device(const Architecture& model) {
  constexpr std::size_t bytes = 8 * sizeof(std::int32_t);
  on_one_device([&](runtime::StreamView stream) {
    const MicrobatchShape shape{2, 8, 1};
    run_each_layer(model, {}, {bytes, bytes}, {&shape, 1}, stream);
  });
}

}  // namespace

TEST_CASE("layers of the same kind run once per shape, and layers that do not fit the device do not run") {
  int narrow = 0, wide = 0, huge = 0;
  Architecture architecture{.name = "counted", .positions = 4, .layers = {}};
  architecture.layers.push_back(std::make_unique<Counted>("a", 8, narrow));
  architecture.layers.push_back(std::make_unique<Counted>("b", 8, narrow));
  architecture.layers.push_back(std::make_unique<Counted>("c", 16, wide));
  architecture.layers.push_back(std::make_unique<Counted>("d", std::size_t{1} << 40, huge));
  const auto device = runtime::make_inline_device({.budget_bytes = 1 << 20});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  const MicrobatchShape shapes[] = {{2, 4, 1}, {1, 4, 1}};
  run_each_layer(architecture, {}, {32, 32}, shapes, *stream);
  CHECK(narrow == 8);  // forward, backward_input and backward_weight twice, in two shapes
  CHECK(wide == 8);
  CHECK(huge == 0);
  CHECK(device->used_bytes() == 0);
}

TEST_CASE("a GPT's layers run without a training run, with and without tiles") {
  for (const int tile : {1, 2}) {
    const GptOptions options{.layers = 2,
                             .hidden = 16,
                             .heads = 2,
                             .vocab_size = 40,
                             .sequence_length = 8,
                             .dropout = 0.1f,
                             .tile = tile};
    run_on_one_device(make_gpt(options));
  }
}

TEST_CASE("a BERT's head gets as many targets as its capacity") {
  BertOptions options{.layers = 1, .hidden = 16, .heads = 2, .inner = 24, .vocab_size = 40, .sequence_length = 8};
  for (const int targets : {0, 3, 8}) {
    options.targets = targets;
    run_on_one_device(make_bert(options));
  }
}
