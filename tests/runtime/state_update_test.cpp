// Properties of all kernels that update states: AdamW, SGD and Muon's.
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/int8_block.hpp"
#include "runtime/kernels/momentum.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::Bench;

namespace {

using Bytes = std::vector<std::byte>;
using UpdateCall = void (*)(StreamView, const UpdateArrays&, float* update, const std::vector<DecaySegment>&,
                            const UpdateOptions&);

struct UpdateKernel {
  std::string_view name;
  UpdateCall call;
};

constexpr std::array<UpdateKernel, 6> kernels = {{
    {"adamw", [](StreamView stream, const UpdateArrays& arrays, float*, const std::vector<DecaySegment>& segments,
                 const UpdateOptions& options) { adamw(stream, arrays, segments, options); }},
    {"average",
     [](StreamView stream, const UpdateArrays& arrays, float*, const std::vector<DecaySegment>& segments,
        const UpdateOptions& options) {
       UpdateOptions averages = options;
       averages.average = 0.125;
       adamw(stream, arrays, segments, averages);
     }},
    {"sgd", [](StreamView stream, const UpdateArrays& arrays, float*, const std::vector<DecaySegment>& segments,
               const UpdateOptions& options) { sgd(stream, arrays, segments, options); }},
    {"sgd without momentum",
     [](StreamView stream, const UpdateArrays& arrays, float*, const std::vector<DecaySegment>& segments,
        const UpdateOptions& options) {
       UpdateArrays without = arrays;
       without.m = nullptr;
       sgd(stream, without, segments, options);
     }},
    {"muon_momentum", muon_momentum},
    {"muon_apply",
     [](StreamView stream, const UpdateArrays& arrays, float* update, const std::vector<DecaySegment>& segments,
        const UpdateOptions& options) { muon_apply(stream, arrays, update, segments, options); }},
}};

struct StateTypes {
  DType weights = DType::f32, m = DType::f32, v = DType::f32;
};
constexpr std::array<StateTypes, 7> state_types = {{{},
                                                    {DType::bf16, DType::f32, DType::f32},
                                                    {DType::f32, DType::bf16, DType::f32},
                                                    {DType::bf16, DType::bf16, DType::bf16},
                                                    {DType::f32, DType::i8, DType::u8},
                                                    {DType::bf16, DType::i8, DType::u8},
                                                    {DType::f32, DType::i8, DType::bf16}}};

Bytes stored(const std::vector<float>& values, DType dtype) {
  Bytes bytes(bytes_of(dtype, values.size()));
  if (is_in_blocks(dtype)) {
    blocks_of_floats(reinterpret_cast<Int8Block*>(bytes.data()), values.data(), dtype, values.size());
    return bytes;
  }
  with_float_type(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = from_float<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return bytes;
}

std::vector<float> loaded(const Bytes& bytes, DType dtype, std::size_t elements) {
  std::vector<float> values(elements);
  if (is_in_blocks(dtype)) {
    floats_of_blocks(values.data(), reinterpret_cast<const Int8Block*>(bytes.data()), dtype, elements);
    return values;
  }
  with_float_type(dtype, [&]<typename T>(T value) {
    for (std::size_t i = 0; i < elements; ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      values[i] = to_float(value);
    }
  });
  return values;
}

/// Contents of all arrays; the update is in fp32.
struct UpdateMemory {
  StateTypes types;
  DType gradient_dtype;  ///< also of the working copy
  Bytes weights, m, v, gradient, update, working;

  [[nodiscard]] bool same_as(const UpdateMemory& other) const {
    return weights == other.weights && m == other.m && v == other.v && update == other.update &&
           working == other.working;
  }
  [[nodiscard]] UpdateMemory with_states_in(const StateTypes& to, std::size_t elements) const {
    UpdateMemory converted = *this;
    converted.types = to;
    converted.weights = stored(loaded(weights, types.weights, elements), to.weights);
    converted.m = stored(loaded(m, types.m, elements), to.m);
    converted.v = stored(loaded(v, types.v, elements), to.v);
    return converted;
  }
};

UpdateMemory drawn_arrays(std::size_t elements, std::mt19937_64& random, DType gradient_dtype = DType::bf16) {
  std::normal_distribution<float> normal;
  const auto values = [&](float scale) {
    std::vector<float> drawn(elements);
    for (float& value : drawn) value = normal(random) * scale;
    return drawn;
  };
  std::vector<float> squares = values(1e-2f);
  for (float& value : squares) value *= value;
  return {.types = {},
          .gradient_dtype = gradient_dtype,
          .weights = stored(values(0.02f), DType::f32),
          .m = stored(values(1e-2f), DType::f32),
          .v = stored(squares, DType::f32),
          .gradient = stored(values(1e-2f), gradient_dtype),
          .update = stored(values(1), DType::f32),
          .working = stored(std::vector<float>(elements, 64), gradient_dtype)};  // no weight
}

/// Runs a kernel on copies of the arrays, a launch per part [begin, end) of `cuts`; `runs.elements` is ignored.
UpdateMemory updated(Stream& stream, const UpdateKernel& kernel, const UpdateMemory& start, const UpdateRuns& runs,
                     const std::vector<DecaySegment>& segments, const UpdateOptions& options,
                     const std::vector<std::size_t>& cuts) {
  const tests::OnDevice<std::byte> weights(stream, start.weights), m(stream, start.m), v(stream, start.v),
      gradient(stream, start.gradient), update(stream, start.update), working(stream, start.working);
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    const std::size_t begin = cuts[i - 1], end = cuts[i];
    const auto at = [&](const tests::OnDevice<std::byte>& array, DType dtype) {
      return array.data() + bytes_of(dtype, begin);
    };
    std::vector<DecaySegment> inside;
    for (const DecaySegment& segment : segments) {
      const std::size_t from = std::max(segment.begin, begin),
                        to = cuts.size() == 2 ? segment.end : std::min(segment.end, end);
      if (from <= to) inside.push_back({from - begin, to - begin, segment.decays});
    }
    UpdateOptions of_part = options;
    of_part.rounding.element += begin;
    UpdateRuns of_runs = runs;
    of_runs.elements = end - begin;
    kernel.call(stream,
                {.weights = at(weights, start.types.weights),
                 .m = at(m, start.types.m),
                 .v = at(v, start.types.v),
                 .gradient = at(gradient, start.gradient_dtype),
                 .gradient_dtype = start.gradient_dtype,
                 .working = at(working, start.gradient_dtype),
                 .working_dtype = start.gradient_dtype,
                 .weights_dtype = start.types.weights,
                 .m_dtype = start.types.m,
                 .v_dtype = start.types.v,
                 .runs = of_runs},
                reinterpret_cast<float*>(at(update, DType::f32)), inside, of_part);
  }
  return {.types = start.types,
          .gradient_dtype = start.gradient_dtype,
          .weights = weights.read(),
          .m = m.read(),
          .v = v.read(),
          .gradient = start.gradient,
          .update = update.read(),
          .working = working.read()};
}

/// Rounds the result of a kernel on float states: bf16 stochastically if changed, int8 to nearest.
UpdateMemory rounded_result(const UpdateMemory& floats, const UpdateMemory& before, const StateTypes& types,
                            std::size_t elements, const UpdateOptions& options) {
  const auto round = [&](const Bytes& result, const Bytes& start, DType dtype, std::size_t array) {
    std::vector<float> values = loaded(result, DType::f32, elements);
    const std::vector<float> old = loaded(start, DType::f32, elements);
    for (std::size_t i = 0; dtype == DType::bf16 && i < elements; ++i) {
      if (values[i] == old[i]) continue;
      const std::uint64_t element = options.rounding.element + i;
      const auto words =
          philox(options.rounding.key, {static_cast<std::uint32_t>(element / 2), 0, options.rounding.unit,
                                        static_cast<std::uint32_t>(options.step)});
      const std::size_t first = element % 2 * 2;
      const std::array<std::uint32_t, 3> bits = {words[first], words[first] >> 16, words[first + 1]};
      values[i] = round_to_bf16(values[i], static_cast<std::uint16_t>(bits[array]));
    }
    return stored(values, dtype);
  };
  UpdateMemory result = floats;
  result.types = types;
  result.weights = round(floats.weights, before.weights, types.weights, 0);
  result.m = round(floats.m, before.m, types.m, 1);
  result.v = round(floats.v, before.v, types.v, 2);
  if (types.weights != DType::bf16) return result;
  // The working copy has the rounded weights.
  for (std::size_t i = 0; i < result.working.size(); ++i)
    if (floats.working[i / 2 * 2] != before.working[i / 2 * 2] ||
        floats.working[i / 2 * 2 + 1] != before.working[i / 2 * 2 + 1])
      result.working[i] = result.weights[i];
  return result;
}

UpdateOptions drawn_options(std::mt19937_64& random) {
  return {.learning_rate = 1e-2,
          .step = 7,
          .gradient_scale = 0.75,
          .rounding = {.key = philox_key(random(), RandomPurpose::rounding), .unit = 5, .element = 1001}};
}

/// Several segments per block, some of which cross blocks: more than a launch on a GPU takes.
std::vector<DecaySegment> many_segments(std::size_t elements) {
  std::vector<DecaySegment> segments;
  for (std::size_t begin = 5; begin + 7 <= elements; begin += 8)
    segments.push_back({begin, begin + 7, begin % 3 == 0});
  return segments;
}

}  // namespace

TEST_CASE(
    "updated states are the rounded results of an update of floats, with any split, at blocks if int8, and on the "
    "CPU") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  constexpr std::size_t n = 2221, capacity = 2304;  // the rest of the last block stays
  const UpdateOptions options = drawn_options(random);
  const UpdateMemory drawn = drawn_arrays(capacity, random);
  const Bench bench;
  const auto cpu = make_cpu_device({.threads = 3});
  const auto cpu_stream = cpu->make_stream("test", StreamWidth::whole);
  const std::vector<std::vector<DecaySegment>> choices = {{{3, 700, true},
                                                           {700, 710, false},
                                                           {710, 710, true},
                                                           {900, 1100, true},
                                                           {1300, 1301, false},
                                                           {1800, n, true}},
                                                          many_segments(n)};
  for (const UpdateKernel& kernel : kernels) {
    CAPTURE(kernel.name);
    for (const StateTypes& types : state_types) {
      CAPTURE_ALL(to_string(types.weights), to_string(types.m), to_string(types.v));
      const UpdateMemory start = drawn.with_states_in(types, capacity);
      const UpdateMemory floats = start.with_states_in({}, capacity);
      for (const auto& segments : choices) {
        CAPTURE(segments.size());
        const UpdateMemory of_floats = updated(*bench.stream, kernel, floats, {}, segments, options, {0, n});
        CHECK(!of_floats.same_as(floats));
        const UpdateMemory expected = rounded_result(of_floats, floats, types, capacity, options);
        for (const std::vector<std::size_t>& cuts :
             {std::vector<std::size_t>{0, n}, {0, 256, n}, {0, 1024, 1536, n}, {0, 1, 300, n}}) {
          if (is_in_blocks(types.m) && cuts[1] == 1) continue;
          const UpdateMemory result = updated(*bench.stream, kernel, start, {}, segments, options, cuts);
          CHECK(result.weights == expected.weights);
          CHECK(result.m == expected.m);
          CHECK(result.v == expected.v);
          CHECK(result.update == expected.update);
          CHECK(result.working == expected.working);
        }
        CHECK(updated(*cpu_stream, kernel, start, {}, segments, options, {0, n}).same_as(expected));
      }
    }
  }
}

TEST_CASE("updates of runs have the bits of updates of each of them, and elements between runs stay") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const UpdateOptions options = drawn_options(random);
  const Bench bench(2);
  for (const auto& [run, stride, runs, last] : {std::array<std::size_t, 4>{512, 1280, 3, 512},
                                                {256, 512, 5, 100},
                                                {768, 768, 2, 500},
                                                {512, 1300, 5, 512},
                                                {96, 128, 9, 96},
                                                {7, 19, 40, 7},
                                                {64, 64, 3, 64},
                                                {33, 48, 6, 5}}) {
    CAPTURE(run);
    const std::size_t n = stride * runs, elements = run * (runs - 1) + last;
    const StridedLayout strided{run, stride};
    for (const UpdateKernel& kernel : kernels) {
      CAPTURE(kernel.name);
      for (const StateTypes& types : state_types) {
        if (is_in_blocks(types.m) && (run % int8_block_elements != 0 || stride % int8_block_elements != 0))
          continue;
        const DType gradient_dtype = std::array{DType::f32, DType::bf16, DType::f16}[random() % 3];
        const bool compact = random() % 2 == 0;  // gradient
        CAPTURE_ALL(to_string(types.weights), to_string(types.m), to_string(types.v), to_string(gradient_dtype),
                    compact);
        const UpdateMemory start = drawn_arrays(n, random, gradient_dtype).with_states_in(types, n);
        const UpdateRuns layout{.positions = strided,
                                .weights = strided,
                                .moments = strided,
                                .gradient = compact ? StridedLayout() : strided,
                                .working = strided};
        UpdateMemory gathered = start;
        const std::size_t width = size_of(gradient_dtype);
        for (std::size_t x = 0; x < elements && compact; ++x)
          std::copy_n(start.gradient.data() + strided.at(x) * width, width, gathered.gradient.data() + x * width);
        for (const std::vector<DecaySegment>& segments :
             {std::vector<DecaySegment>{
                  {3, stride + 2, true}, {stride + 2, n - stride / 2, false}, {n - stride / 2, n - 3, true}},
              many_segments(n)}) {
          CAPTURE(segments.size());
          std::vector<DecaySegment> in_runs;
          for (const DecaySegment& segment : segments) {
            for (std::size_t r = 0; r < runs; ++r) {
              const std::size_t begin = r * stride, end = begin + (r + 1 < runs ? run : last);
              const std::size_t from = std::max(segment.begin, begin), to = std::min(segment.end, end);
              if (from < to) in_runs.push_back({from, to, segment.decays});
            }
          }
          const UpdateMemory at_once =
              updated(*bench.stream, kernel, gathered, layout, segments, options, {0, elements});
          CHECK(at_once.same_as(updated(*bench.stream, kernel, start, {}, in_runs, options, {0, n})));
        }
      }
    }
  }
}

TEST_CASE("updates refuse runs and segments that do not suit blocks of int8, and types that states cannot have") {
  const Bench bench;
  std::mt19937_64 random(1);
  const UpdateMemory floats = drawn_arrays(1024, random);
  const std::vector<DecaySegment> all = {{0, 512, true}};
  const auto update = [&](const StateTypes& types, const StridedLayout& layout,
                          const std::vector<DecaySegment>& segments) {
    for (const UpdateKernel& kernel : {kernels[0], kernels[2], kernels[4]}) {
      const UpdateRuns runs{.positions = layout, .moments = layout};
      (void)updated(*bench.stream, kernel, floats.with_states_in(types, 1024), runs, segments, {}, {0, 512});
    }
  };
  const StateTypes int8 = {DType::f32, DType::i8, DType::u8};
  update(int8, {}, all);
  CHECK_THROWS_WITH_AS(update(int8, {128, 512}, all), doctest::Contains("runs of 128 elements"), Error);
  CHECK_THROWS_WITH_AS(update(int8, {256, 500}, all), doctest::Contains("every 500 elements"), Error);
  CHECK_THROWS_WITH_AS(update({DType::f32, DType::u8, DType::f32}, {}, all), doctest::Contains("uint8"), Error);
  CHECK_THROWS_WITH_AS(update({DType::f32, DType::f32, DType::i8}, {}, all), doctest::Contains("int8"), Error);
  CHECK_THROWS_WITH_AS(update({DType::i8, DType::f32, DType::f32}, {}, all), doctest::Contains("int8"), Error);
  std::vector<DecaySegment> segments;
  for (std::size_t i = 0; i < 64; ++i) segments.push_back({100 + 2 * i, 101 + 2 * i, true});
  segments.push_back({300, 500, true});
  update(int8, {}, segments);
  segments.insert(segments.begin(), {10, 20, true});
  CHECK_THROWS_WITH_AS(update(int8, {}, segments), doctest::Contains("more than 64 segments"), Error);
}
