#include "models/families/gpt.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Checks that rows of a unit after `rows` affect neither the loss nor gradients.
void check_padding(const GptOptions& options, const std::string& name, std::size_t rows) {
  const auto samples = made_up_samples(options, 0, 3);
  const std::size_t used = rows * static_cast<std::size_t>(options.hidden);
  ModelRun plain(device_of(2, true), options, 3), spoilt(device_of(2, true), options, 3);
  TypedArray& table = spoilt.parameters(name);
  for (std::size_t i = used; i < table.size(); ++i) table.set(i, 3);
  CHECK(plain.forward(samples, 1.0) == spoilt.forward(samples, 1.0));
  spoilt.backward(false);
  for (const auto& [unit, gradient] : spoilt.gradients()) {
    if (unit.name != name) continue;
    for (std::size_t i = used; i < gradient.size(); ++i) CHECK(gradient[i] == 0);
  }
}

}  // namespace

TEST_CASE("a GPT's loss, activations and gradients equal the reference in double precision, tiled or not") {
  ranvier::tests::Share share(1, 3);
  for (const int tile : {1, 2, 3, 12})
    for (const auto& [dropout, at_once] : {std::pair{0.0f, true}, {0.0f, false}, {0.3f, true}, {0.3f, false}}) {
      if (!share.takes() || repeats(2, at_once)) continue;
      CAPTURE_ALL(tile, dropout, at_once);
      const GptOptions options = tile == 1 ? small_gpt(dropout) : in_tiles(small_gpt(dropout), tile);
      ModelRun run(device_of(2, at_once), options, 3);
      check_reference(run, options, made_up_samples(options, 40, 3),
                      {.slopes = {.stride = test::sanitized ? 151u
                                            : tile > 1      ? 7u
                                            : at_once       ? 1u
                                                            : 5u}});
    }
}

TEST_CASE("tiles give the result of the undivided model, except for the order of sums") {
  ranvier::tests::Share share(on_gpu_here() ? 2 : 1);
  for (const int tile : {2, 3, 4, 6, 12})
    for (const float dropout : {0.0f, 0.2f}) {
      if (!share.takes()) continue;
      CAPTURE_ALL(tile, dropout);
      check_tiles(in_tiles(small_gpt(dropout), tile));
    }
}

TEST_CASE("a table has at most as many tiles as its rows fill, and the last one's padding is unused") {
  const Architecture few = make_gpt(in_tiles(small_gpt(), 12));
  const auto table = few.layers[0]->units();
  REQUIRE(table.size() == 4);  // 64, 64 and 22 rows, and the positions
  CHECK(table[2].parameters[0].shape == std::vector<std::size_t>{22, 12});
  CHECK(table[2].elements() == 64 * 12);
  check_padding(in_tiles(small_gpt(), 3), "wte.2", 22);
}

TEST_CASE("half precision follows fp32 within its rounding, with fp32 and with half gradients, tiled or not") {
  ranvier::tests::Share share(on_gpu_here() ? 2 : 1, 2);
  for (const Precision precision : {Precision{DType::bf16, DType::f32}, Precision{DType::bf16, DType::bf16},
                                    Precision{DType::f16, DType::f32}, Precision{DType::f16, DType::f16}}) {
    CAPTURE_ALL(to_string(precision.compute), to_string(precision.gradient));
    const double error = precision.compute == DType::bf16 ? 0.04 : 0.005;
    for (const int tile : {1, 3, 12}) {
      if (!share.takes()) continue;
      CAPTURE(tile);
      const GptOptions options = in_tiles(small_gpt(0, precision), tile);
      check_follows_fp32(options, in_tiles(small_gpt(), 1), made_up_samples(options, 40, 3), {error / 5, error});
    }
  }
}

TEST_CASE("the number of threads and the kind of device do not change any bit") {
  for (const auto& [precision, tile] : {std::pair{Precision{}, 1},
                                        {Precision{}, 4},
                                        {Precision{DType::bf16, DType::f32}, 1},
                                        {Precision{DType::bf16, DType::f32}, 5},
                                        {Precision{DType::f16, DType::f16}, 1}}) {
    CAPTURE_ALL(to_string(precision.compute), tile);
    const GptOptions options{.layers = 2,
                             .hidden = 80,
                             .heads = 5,
                             .vocab_size = 200,
                             .sequence_length = 45,
                             .dropout = 0.1f,
                             .tile = tile,
                             .precision = precision};
    std::vector<std::pair<int, bool>> devices{{1, true}, {3, false}};
    if (!test::sanitized) devices.insert(devices.end(), {{2, true}, {3, true}, {1, false}, {2, false}});
    check_bits(options, made_up_samples(options, 3, 3), devices);
  }
}

TEST_CASE("gradients of microbatches, with a shorter last one, add up to the gradients of all samples at once") {
  for (const GptOptions& options : {small_gpt(0.2f), in_tiles(small_gpt(0.2f), 4)}) check_microbatches(options, 5);
}

TEST_CASE("a sample's activations and gradients do not depend on its microbatch") {
  if (on_gpu_here()) return;  // its products round differently for other numbers of rows
  for (const auto& [dtype, tile] :
       {std::pair{DType::f32, 1}, {DType::bf16, 1}, {DType::f32, 4}, {DType::bf16, 3}}) {
    GptOptions options{.layers = 1,
                       .hidden = 48,
                       .heads = 3,
                       .vocab_size = 100,
                       .sequence_length = 33,
                       .dropout = 0.1f,
                       .tile = tile,
                       .precision = {dtype, DType::f32}};
    ModelRun together(device_of(2, true), options, 4), alone(device_of(2, true), options, 1);
    static_cast<void>(together.forward(made_up_samples(options, 20, 4), 1.0));
    const std::size_t elements = 33 * 48;
    for (int b = 0; b < 4; ++b) {
      static_cast<void>(alone.forward(made_up_samples(options, 20 + b, 1), 1.0));
      for (const std::size_t layer : {0, 1})
        CHECK(same_bits(together.output(layer), static_cast<std::size_t>(b) * elements, alone.output(layer), 0,
                        elements));
    }
  }
}

TEST_CASE("evaluation drops nothing and gives the training loss without dropout") {
  const auto samples = made_up_samples(small_gpt(), 0, 3);
  ModelRun plain(device_of(1, true), small_gpt(), 3), dropping(device_of(1, true), small_gpt(0.5f), 3);
  const double expected = plain.forward(samples, 1.0);
  CHECK(plain.forward(samples, 1.0, 1, false) == expected);
  CHECK(dropping.forward(samples, 1.0, 1, false) == expected);
  CHECK(dropping.forward(samples, 1.0) != expected);
}

TEST_CASE("the loss scale multiplies gradients and does not change the loss") {
  const auto samples = made_up_samples(small_gpt(), 0, 3);
  ModelRun plain(device_of(1, true), small_gpt(), 3), scaled(device_of(1, true), small_gpt(), 3);
  CHECK(plain.forward(samples, 0.01) == scaled.forward(samples, 0.01, 256));
  plain.backward(false);
  scaled.backward(false);
  const auto expected = plain.gradients_by_name();
  for (const auto& [name, gradient] : scaled.gradients_by_name()) {
    CAPTURE(name);
    for (std::size_t i = 0; i < gradient.size(); ++i) CHECK(gradient[i] == expected.at(name)[i] * 256);
  }
}

TEST_CASE("padded rows of the token table affect neither the loss nor gradients") {
  check_padding(small_gpt(), "wte", 13);
}

TEST_CASE("memory planned for fewer threads than the device has, and more positions than table rows are refused") {
  const auto device = device_of(3, true);
  const Architecture gpt = make_gpt(small_gpt());
  const auto stream = device->make_stream("s", runtime::StreamWidth::whole);
  LayerCall call{.stream = *stream, .shape = {1, 8, device->threads()}};
  CHECK_THROWS_AS(gpt.layers[0]->forward(call, nullptr, nullptr), Error);
  if (on_gpu_here()) return;  // a GPU has one thread
  call.shape = {1, 7, 1};
  for (const std::size_t layer : {1, 3})
    CHECK_THROWS_WITH_AS(gpt.layers[layer]->forward(call, nullptr, nullptr),
                         doctest::Contains("MicrobatchShape::threads"), Error);
}
