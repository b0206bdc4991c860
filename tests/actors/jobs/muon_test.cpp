// Muon: complete jobs against a transcription in double precision; bits and memory of its placements; the order of its
// two passes.
#include "actors/optimizer/bundle_sweep.hpp"
#include "actors/rank/learning_rate.hpp"
#include "models/core/initialize.hpp"
#include "runtime/kernels/momentum.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/doubles/simulated_tier.hpp"
#include "tests/models/plain_muon.hpp"
#include "tests/test.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::tests;
using runtime::DType;

namespace {

TrainerOptions muon_run(runtime::GridShape grid = {}, std::string_view sharding = "ddp") {
  TrainerOptions options = small_run(grid, sharding);
  options.tiers.rule = UpdateRule::muon;
  return options;
}

/// A job of one rank with initial weights.
struct OneRank {
  RandomTokens tokens{8, 37};
  runtime::Simulation simulation{1, {.seed = 3}};
  WatchedRanks ranks;

  OneRank(const models::Architecture& architecture, const TrainerOptions& options)
      : ranks(simulation, architecture, tokens, options, nullptr) {
    ranks.load_weights(options.seed);
  }
};

/// Trains on one rank, and steps all matrices with the same gradients in double precision. Returns the largest
/// difference of their elements, and the number of parameters.
std::pair<double, int> difference_from_doubles(const models::Architecture& architecture, TrainerOptions options) {
  OneRank job(architecture, options);
  Rank& rank = *job.ranks.ranks.front();
  const auto& units = rank.plan().states->all();
  struct Matrix {
    const UnitState* unit;
    std::size_t begin, columns;  // first element of the unit, and columns of the parameter
    models::MatrixPart part;
    bool decays;
    models::PlainMatrix weights;
    models::PlainMuon muon;
  };
  const auto values_of = [](const Matrix& each, const UnitView& view) {
    models::PlainMatrix values;
    for (std::size_t row = 0; row < each.part.rows; ++row) {
      const std::byte* first =
          view.at(each.begin + (each.part.first_row + row) * each.columns + each.part.first_column);
      const std::span elements(reinterpret_cast<const float*>(first), each.part.columns);
      values.emplace_back(elements.begin(), elements.end());
    }
    return values;
  };
  std::vector<Matrix> matrices;
  int parameters = 0;
  for (const UnitState& unit : units) {
    std::vector<float> first(unit.spec->elements());  // separate master weights are filled when the rank starts
    models::initialize(*unit.spec, options.seed, 0, first.size(), first.data());
    const UnitView initial{.range = {0, first.size()}, .data = reinterpret_cast<std::byte*>(first.data())};
    for (const UnitMatrix& matrix : unit.matrices) {
      ++parameters;
      const models::ParameterSpec& parameter = unit.spec->parameters[matrix.parameter];
      for (const models::MatrixPart& part : parameter.matrices) {
        matrices.push_back({&unit,
                            matrix.range.begin,
                            parameter.elements() / parameter.shape.front(),
                            part,
                            parameter.decays,
                            {},
                            models::PlainMuon(part.rows, part.columns)});
        matrices.back().weights = values_of(matrices.back(), initial);
      }
    }
  }
  std::int64_t step = 0;
  const auto stepped = [&](const StepResult&) {
    const double rate = learning_rate(options.learning_rate, ++step) * muon_rate(options.learning_rate);
    for (Matrix& each : matrices)
      each.muon.step(each.weights, values_of(each, each.unit->gradients.front()), rate,
                     each.decays ? options.adamw.weight_decay : 0, options.adamw.momentum);
  };
  rank.start({.step = stepped, .evaluation = {}, .done = [&] { job.simulation.loop(0).stop(); }});
  job.simulation.run();
  CHECK(step == options.steps);
  double worst = 0;
  for (const Matrix& each : matrices) {
    const models::PlainMatrix weights = values_of(each, each.unit->master);
    for (std::size_t i = 0; i < weights.size(); ++i)
      for (std::size_t j = 0; j < weights[i].size(); ++j)
        worst = std::max(worst, std::abs(weights[i][j] - each.weights[i][j]));
  }
  return {worst, parameters};
}

}  // namespace

TEST_CASE("twenty steps of Muon give the matrices of a transcription in double precision") {
  TrainerOptions options = muon_run();
  options.steps = options.learning_rate.steps = 20;
  options.clip = 0;
  for (const double rate : {1.0, 0.5}) {  // learning rate of matrices, relative to other parameters
    options.learning_rate.muon_peak = rate * options.learning_rate.peak;
    const auto [gpt, of_gpt] = difference_from_doubles(models::make_gpt(small_gpt()), options);
    CHECK(gpt < 1e-5);
    CHECK(of_gpt == 4 * 4);  // four blocks: fused QKV, projection, MLP
    const auto [llama, of_llama] = difference_from_doubles(models::make_llama(small_llama()), options);
    CHECK(llama < 1e-5);
    CHECK(of_llama > 0);
    const auto [lora, of_lora] =
        difference_from_doubles(models::make_gpt(small_gpt(), adapters({"attn.c_attn", "mlp.c_proj"})), options);
    CHECK(lora < 1e-5);
    CHECK(of_lora == 4 * 2 * 2);  // A and B
  }
  for (const DType dtype : {DType::bf16, DType::f16}) {  // layers in half precision: matrices in bf16
    options.precision = {dtype, DType::f32};
    const double half =
        difference_from_doubles(models::make_gpt(in_precision(small_gpt(), options.precision)), options).first;
    CHECK(half > 1e-4);  // in fp32: 1.3e-7
    CHECK(half < 3e-3);
  }
}

TEST_CASE(
    "norms and biases have the bits of AdamW with complete second moments, also in int8 blocks with matrices") {
  for (const DType moments : {DType::f32, DType::bf16, DType::i8}) {
    CAPTURE(to_string(moments));
    TrainerOptions options = muon_run();
    options.steps = options.learning_rate.steps = 5;
    options.clip = 0;
    options.tiers.moments = moments;
    const models::Architecture architecture = models::make_gpt(small_gpt());
    OneRank job(architecture, options);
    Rank& rank = *job.ranks.ranks.front();
    const auto& units = rank.plan().states->all();
    struct Copy {
      std::vector<float> weights, update;
      std::vector<std::byte> m, v;  // without gaps
    };
    std::vector<Copy> copies;
    for (const UnitState& unit : units) {
      Copy& copy = copies.emplace_back();
      copy.weights.resize(unit.elements);
      copy.update.resize(unit.elements);
      copy.m.resize(unit.m.bytes());
      copy.v.resize(unit.m.bytes());
      models::initialize(*unit.spec, options.seed, 0, unit.spec->elements(), copy.weights.data());
    }
    const auto device = runtime::make_inline_device();
    const auto stream = device->make_stream("transcription", runtime::StreamWidth::whole);
    std::int64_t step = 0;
    const auto stepped = [&](const StepResult&) {
      for (std::size_t u = 0; u < units.size(); ++u) {
        const UnitState& unit = units[u];
        Copy& copy = copies[u];
        runtime::UpdateOptions adamw = options.adamw;
        adamw.step = step + 1;
        adamw.learning_rate = learning_rate(options.learning_rate, step + 1);
        adamw.rounding = {.key = runtime::philox_key(options.seed, runtime::RandomPurpose::rounding),
                          .unit = static_cast<std::uint32_t>(unit.global_index)};
        const runtime::UpdateArrays arrays{.weights = copy.weights.data(),
                                           .m = copy.m.data(),
                                           .v = copy.v.data(),
                                           .gradient = unit.gradients.front().data,
                                           .m_dtype = unit.m.dtype,
                                           .v_dtype = unit.v.dtype,
                                           .runs = {.elements = unit.elements}};
        runtime::adamw(*stream, arrays, unit.segments, adamw);
        runtime::muon_momentum(*stream, arrays, copy.update.data(), unit.matrix_segments, adamw);
      }
      ++step;
    };
    rank.start({.step = stepped, .evaluation = {}, .done = [&] { job.simulation.loop(0).stop(); }});
    job.simulation.run();
    CHECK(step == options.steps);
    std::size_t shared = 0;  // blocks of v with matrices
    for (std::size_t u = 0; u < units.size(); ++u) {
      const UnitState& unit = units[u];
      const Copy& copy = copies[u];
      CHECK((unit.v.bytes() < unit.m.bytes()) == !unit.matrices.empty());
      CHECK(std::ranges::equal(std::span(unit.m.data, unit.m.bytes()), copy.m));
      for (const runtime::DecaySegment& segment : unit.segments)
        CHECK(std::memcmp(unit.master.at(segment.begin), copy.weights.data() + segment.begin,
                          (segment.end - segment.begin) * sizeof(float)) == 0);
      for (const collectives::Range& range : unit.v.stored.in(unit.optimizer)) {
        const std::byte* const complete = copy.v.data() + runtime::bytes_of(moments, range.begin);
        CHECK(std::memcmp(unit.v.at(range.begin), complete, runtime::bytes_of(moments, range.count)) == 0);
        shared += static_cast<std::size_t>(std::ranges::count_if(
            unit.matrices, [&](const UnitMatrix& matrix) { return matrix.range.overlaps(range); }));
      }
    }
    CHECK(shared > 8);
  }
}

TEST_CASE("matrices larger than a bucket, in any tier, give the same bits under every sharding") {
  auto options = muon_run({1, 6});
  options.batch_size = 12;
  options.steps = 3;
  options.precision = {DType::bf16, DType::f32};
  options.group_size = 2;
  const auto gpt = in_precision(small_gpt(5), options.precision);
  for (const double clip : {0.0, 0.5}) {
    options.clip = clip;
    std::uint64_t seed = 0;
    for (const char* sharding : {"ddp", "zero1", "zero3", "mics", "paro-iig", "NNI"}) {
      options.sharding = collectives::parse_sharding(sharding);
      options.tiers = {.rule = UpdateRule::muon};
      const JobResult usual = run_simulated(gpt, options, 1);
      for (const TierKind states : {TierKind::device, TierKind::host, TierKind::nvme}) {
        ++seed;
        if (test::sanitized && seed % 3 != 0) continue;
        CAPTURE_ALL(std::string(sharding), static_cast<int>(states), clip);
        options.tiers = {.parameters = states, .optimizer = states, .rule = UpdateRule::muon};
        options.tiers.bucket_elements = 512;
        options.tiers.bundle_bytes = seed % 2 == 0 ? 1 : 1 << 20;
        options.tiers.depth = 1;
        options.tiers.optimizer_budget = seed % 4 == 0 ? 20'000 : 0;
        options.tiers.files.make = [](runtime::EventLoop& loop, int) {
          return std::make_unique<offload::tests::SimulatedFiles>(loop,
                                                                  [] { return std::chrono::microseconds(100); });
        };
        check_same_bits(usual, run_simulated(gpt, options, seed, Devices::delayed));
      }
    }
  }
}

TEST_CASE("all ranks of a column plan the same memory, also where matrices are not divided equally") {
  for (const char* sharding : {"ddp", "zero1", "mics"}) {
    for (const int rows : {2, 4, 8}) {
      auto options = muon_run({1, rows}, sharding);
      options.batch_size = 2 * rows;
      options.group_size = 2;
      options.gpu = TrainerOptions::GpuMemory{.staged = true};
      const auto gpt = models::make_gpt(small_gpt(6));
      const auto bytes = [&](int rank) {
        const RankPlan plan = plan_of(gpt, options, rank);
        return std::pair(plan.memory.bytes(runtime::MemorySpace::device),
                         plan.memory.bytes(runtime::MemorySpace::pinned));
      };
      for (int rank = 1; rank < rows; ++rank) CHECK(bytes(rank) == bytes(0));
    }
  }
}

TEST_CASE(
    "matrices pass twice, each pass in the order of bundles, and second passes follow the next unit's first") {
  using Pass = BundleSweep::Pass;
  for (const std::uint64_t seed : test::seeds(effort(60, 600, 20))) {
    CAPTURE(seed);
    Draw draw(seed);
    auto options = muon_run({1, draw.of(1, 2, 4)}, draw.of("ddp", "zero1", "zero3"));
    options.tiers.bucket_elements = draw.of(512u, 1024u, 1u << 20);
    options.tiers.bundle_bytes = draw.of(1u, 6000u, 20'000u, 1u << 20);
    options.tiers.chunk_buckets = draw.of(0u, 1u, 3u);
    const RankPlan plan = plan_of(models::make_gpt(small_gpt(draw(3, 8))), options, 0);
    for (const auto& order : {plan.chunks.as_reduced(), plan.chunks.from_the_front()}) {
      const BundleSweep sweep(plan, order);
      std::size_t first_passes = 0, last_passes = 0, most = 0;
      std::map<std::size_t, std::size_t> first, second;  // buckets by unit with matrices
      std::set<std::size_t> updated;
      for (const BundleSweep::Bundle& bundle : sweep.bundles) {
        if (bundle.pass != Pass::matrices) CHECK(bundle.number == first_passes++);
        if (bundle.pass != Pass::momentum) CHECK(bundle.number == last_passes++);
        for (const ChunkSchedule::Bucket& bucket : bundle.buckets) {
          const UnitState& unit = plan.states->all()[bucket.unit];
          if (unit.matrices.empty()) continue;
          CHECK(bundle.pass != Pass::whole);
          if (bundle.pass == Pass::momentum) {
            ++first[bucket.unit];
            updated.insert(bucket.unit);
            most = std::max(most, updated.size());
          } else {
            CHECK(first[bucket.unit] == unit.cut.buckets());
            if (++second[bucket.unit] == unit.cut.buckets()) updated.erase(bucket.unit);
          }
        }
      }
      CHECK(first_passes == order.size());
      CHECK(last_passes == order.size());
      CHECK(first == second);
      CHECK(first.size() == sweep.matrix_units.size());
      CHECK(most == sweep.updated_units);
      const std::size_t ahead = options.grid.g_data > 1 ? 2 : 1;
      if (options.tiers.bundle_bytes == 1) CHECK(most == std::min(ahead, first.size()));
    }
  }
}
