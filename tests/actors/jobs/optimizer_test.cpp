// The optimizer's phase of a batch, in chunks of buckets: if every step is committed, it must not wait, and speculative
// updates must not change a bit.
#include "actors/optimizer/optimizer.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::TierKind;
using actors::TierOptions;
using runtime::DType;

namespace {

/// Units of several granules (BucketPartition) for each of four ranks.
models::GptOptions gpt_of(DType dtype = DType::f32) {
  return {.layers = 3,
          .hidden = 32,
          .heads = 2,
          .vocab_size = 129,
          .sequence_length = 8,
          .precision = {dtype, DType::f32}};
}

actors::TrainerOptions run_of(const models::GptOptions& gpt, int g_inter, int g_data) {
  auto options = small_run({g_inter, g_data});
  options.steps = 3;
  options.precision = gpt.precision;
  options.group_size = 2;
  return options;
}

TierOptions cut(std::size_t bucket, std::size_t chunk, TierKind states = TierKind::device) {
  return {.optimizer = states, .bucket_elements = bucket, .chunk_buckets = chunk, .bundle_bytes = 1};
}

/// Clipping limits that clip no step of such a job, some, and all.
std::vector<double> bounds(const models::GptOptions& gpt, actors::TrainerOptions options) {
  options.tiers = {};
  options.clip = 1e6;
  std::vector<double> norms;
  for (const actors::StepResult& step : run_simulated(gpt, options, 1).steps) norms.push_back(step.gradient_norm);
  std::sort(norms.begin(), norms.end());
  return {1e6, norms[norms.size() / 2], 1e-3};
}

}  // namespace

TEST_CASE(
    "speculative updates give the bits of updates that wait, if clipping happens never, sometimes or always") {
  std::uint64_t seed = 0;
  for (const auto& [dtype, parameters] : {std::pair{DType::bf16, TierKind::device}, {DType::f32, TierKind::host}}) {
    const auto gpt = gpt_of(dtype);
    for (const auto& [g_inter, g_data] : {std::pair{1, 2}, {2, 2}}) {
      auto options = run_of(gpt, g_inter, g_data);
      options.steps = 4;
      options.eval_every = 2;
      options.eval_samples = options.batch_size;
      const auto all = bounds(gpt, options);
      for (std::size_t b = 0; b < all.size(); ++b) {
        options.clip = all[b];
        options.tiers = {};
        const auto waits = run_simulated(gpt, options, 1);
        for (const auto step : {actors::StepLocation::device, actors::StepLocation::host}) {
          for (const std::size_t bucket : {512, 1 << 20}) {
            ++seed;
            if (test::sanitized && seed % 3 != 0) continue;
            INFO("clip ", options.clip, ", bucket ", bucket);
            options.tiers = cut(bucket, 1 + seed % 3, TierKind::host);
            options.tiers.depth = 1 + seed / 3 % 3;
            options.tiers.parameters = parameters;
            options.tiers.step = step;
            options.tiers.commit = actors::Commit::flip;
            const auto device = seed % 2 == 0 ? Devices::inline_ : Devices::delayed;
            const auto flips = run_simulated(gpt, options, seed, device);
            check_same_bits(waits, flips);
            CHECK(flips.answers.flipped + flips.answers.again == 4);
            CHECK((flips.answers.flipped > 0) == (b < 2));
            CHECK((flips.answers.again > 0) == (b > 0));
            CHECK((flips.answers.buckets_ahead > 0) == (b < 2));
          }
        }
      }
    }
  }
}

namespace {

struct Stepped {
  std::size_t before = 0;  ///< maximum number of changed units at the time of sending other ranks' gradients
  std::int64_t ahead = 0;  ///< buckets that were updated before the decision
};

/// Progress of rank 0 in one step before all gradients were reduced.
Stepped stepped_before_all_is_reduced(double clip, TierKind states, actors::Commit commit = actors::Commit::wait) {
  const auto dtype = commit == actors::Commit::flip ? DType::bf16 : DType::f32;
  const models::GptOptions gpt{.layers = 12,
                               .hidden = 16,
                               .heads = 2,
                               .vocab_size = 37,
                               .sequence_length = 8,
                               .precision = {dtype, DType::f32}};
  const auto architecture = models::make_gpt(gpt);
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  auto options = small_run({1, 2});
  options.steps = 1;
  options.clip = clip;
  options.precision = gpt.precision;
  options.tiers = cut(std::size_t{1} << 20, 1, states);
  options.tiers.commit = commit;
  runtime::Simulation simulation(2, {.seed = 3});
  std::vector<std::vector<std::byte>> before;
  std::size_t most = 0;
  const actors::Rank* first = nullptr;
  WatchedRanks ranks(simulation, architecture, tokens, options, [&](int rank, int, runtime::Tag tag, std::size_t) {
    if (rank != 0 || tag.channel != runtime::Channel::collective) return;
    std::size_t changed = 0;
    const auto& units = first->plan().states->all();
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (std::memcmp(units[u].parameters.data, before[u].data(), before[u].size()) != 0) ++changed;
    }
    most = std::max(most, changed);
  });
  first = ranks.ranks[0].get();
  ranks.load_weights(options.seed);
  for (const actors::UnitState& unit : first->plan().states->all())
    before.emplace_back(unit.parameters.data, unit.parameters.data + unit.parameters.bytes());
  ranks.run();
  return {most, first->answers().buckets_ahead};
}

}  // namespace

TEST_CASE("if every step is committed, chunks are updated before later ones are reduced; with clipping none is") {
  for (const auto states : {TierKind::device, TierKind::host}) {
    CHECK(stepped_before_all_is_reduced(0.0, states).before > 6);
    CHECK(stepped_before_all_is_reduced(1.0, states).before == 0);
  }
}

TEST_CASE("speculative updates precede the reduction of all chunks, and layers do not read them") {
  const Stepped unclipped = stepped_before_all_is_reduced(1e6, TierKind::host, actors::Commit::flip);
  CHECK(unclipped.before == 0);
  CHECK(unclipped.ahead > 6);
  CHECK(stepped_before_all_is_reduced(1e-6, TierKind::host, actors::Commit::flip).ahead == 0);
}

TEST_CASE("Muon is refused with spare copies and with updates on the host") {
  auto options = run_of(gpt_of(DType::bf16), 1, 2);
  const auto refusal = [&options] {
    return error_of([&] { (void)plan_of(models::make_gpt(gpt_of(DType::bf16)), options, 0); });
  };
  options.tiers.optimizer = TierKind::host;
  options.tiers.rule = actors::UpdateRule::muon;
  options.tiers.commit = actors::Commit::flip;
  CHECK(
      says(refusal(), "`optimizer` muon does not work with `optimizer_commit` flip; use `optimizer_commit` wait"));
  options.tiers.commit = actors::Commit::wait;
  options.tiers.step = actors::StepLocation::host;
  CHECK(says(refusal(), "`optimizer` muon does not work with `optimizer_step` host; use `optimizer_step` device"));
}

TEST_CASE("SGD without momentum has no states off the device if layers' parameters are the weights") {
  const auto architecture = models::make_gpt(gpt_of());
  auto options = run_of(gpt_of(), 1, 2);
  options.tiers = cut(1024, 2, TierKind::host);
  options.tiers.rule = actors::UpdateRule::sgd;
  options.tiers.has_momentum = false;
  const auto plan = plan_of(architecture, options, 0);
  CHECK(plan.tiers.bytes(TierKind::host) == 0);
  CHECK(plan.memory.bytes(runtime::MemoryKind::optimizer) == 0);
}

TEST_CASE("units within the budget keep their states on the device in every mode, without a change of any bit") {
  const auto gpt = gpt_of(DType::bf16);
  const auto architecture = models::make_gpt(gpt);
  std::uint64_t seed = 0;
  for (const char* sharding : {"ddp", "NGN", "zero3"}) {
    for (const double clip : {0.0, 0.5}) {
      auto options = run_of(gpt, 2, 2);
      options.sharding = collectives::parse_sharding(sharding);
      options.clip = clip;
      const auto expected = run_simulated(gpt, options, 1);
      for (const TierKind gradients : {TierKind::device, TierKind::host}) {
        for (const auto step : {actors::StepLocation::device, actors::StepLocation::host}) {
          for (const auto commit : {actors::Commit::wait, actors::Commit::flip}) {
            ++seed;
            if (test::sanitized && seed % 3 != 0) continue;
            INFO("sharding ", std::string(sharding), ", clip ", clip, ", gradients ", static_cast<int>(gradients),
                 ", step ", static_cast<int>(step), ", commit ", static_cast<int>(commit));
            options.tiers = cut(512, 1 + seed % 3, TierKind::host);
            options.tiers.gradients = gradients;
            options.tiers.step = step;
            options.tiers.commit = commit;
            options.tiers.optimizer_budget = 60'000;
            for (const int rank : {0, 2}) {  // one per stage
              const auto plan = plan_of(architecture, options, rank);
              CHECK(plan.states->optimizers_on_device() > 0);
              CHECK(plan.states->optimizers_on_device() < plan.states->all().size());
            }
            check_same_bits(expected, run_simulated(gpt, options, seed, Devices::delayed));
          }
        }
      }
    }
  }
}

TEST_CASE("with states off the device a rank keeps only buckets of them, and the tier the bytes of the table") {
  struct Case {
    DType dtype;
    actors::UpdateRule rule;
    bool has_momentum;
    std::size_t bytes;  // bytes per element of the moments, and of master weights if they are separate
  };
  using actors::UpdateRule;
  for (const auto& [dtype, rule, has_momentum, bytes] : {Case{DType::f32, UpdateRule::adamw, true, 8},
                                                         {DType::bf16, UpdateRule::adamw, true, 12},
                                                         {DType::f32, UpdateRule::sgd, true, 4},
                                                         {DType::bf16, UpdateRule::sgd, true, 8},
                                                         {DType::bf16, UpdateRule::sgd, false, 4}}) {
    CAPTURE(bytes);
    const auto architecture = models::make_gpt(gpt_of(dtype));
    auto options = run_of(gpt_of(dtype), 1, 2);
    options.tiers = cut(1024, 2, TierKind::host);
    options.tiers.rule = rule;
    options.tiers.has_momentum = has_momentum;
    const auto plan = plan_of(architecture, options, 0);
    using runtime::MemoryKind;
    using runtime::MemorySpace;
    CHECK(plan.memory.bytes(MemorySpace::device, MemoryKind::optimizer) == 3 * 1024 * bytes);
    std::size_t elements = 0;
    for (const actors::UnitState& unit : plan.states->all()) elements += unit.optimizer.count;
    CHECK(plan.tiers.bytes(TierKind::host) >= elements * bytes);
    CHECK(plan.tiers.bytes(TierKind::host) < elements * bytes + plan.states->all().size() * 4096);
    // The first unit that fits stays on the device; the other regions and the slots are the same.
    auto partly = options;
    const actors::UnitState& first = plan.states->all().front();
    partly.tiers.optimizer_budget = first.optimizer.count * bytes;
    const auto kept = plan_of(architecture, partly, 0);
    CHECK(kept.states->optimizers_on_device() == 1);
    CHECK(kept.memory.bytes(MemorySpace::device) ==
          plan.memory.bytes(MemorySpace::device) + first.optimizer.count * bytes);
    CHECK(kept.tiers.bytes(TierKind::host) ==
          plan.tiers.bytes(TierKind::host) - plan.optimizer.states.states.front().region_bytes());
    if (dtype == DType::f32) continue;
    options.tiers.commit = actors::Commit::flip;
    const auto flips = plan_of(architecture, options, 0);
    CHECK(flips.tiers.bytes(TierKind::host) == 2 * plan.tiers.bytes(TierKind::host));
    CHECK(flips.memory.bytes(MemorySpace::device) == plan.memory.bytes(MemorySpace::device));
    options.clip = 0;  // every step is committed
    CHECK(plan_of(architecture, options, 0).tiers.bytes(TierKind::host) == plan.tiers.bytes(TierKind::host));
  }
}
