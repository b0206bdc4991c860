// ZeRO++'s second copy of the parameters, on the device or in host memory (FCDP): the same bits as zero3, and no more
// device memory if it is in host memory.
#include "tests/actors/memory_checkpoints.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/actors/small_models.hpp"
#include "tests/doubles/simulated_tier.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using actors::TierKind;
using collectives::parse_sharding;
using runtime::MemorySpace;

namespace {

constexpr int rows = 4;

/// Adapters on a frozen base, or nothing frozen; the embedding is tied to the head.
models::Architecture model_of(bool frozen) {
  return models::make_gpt(small_gpt(), frozen ? adapters({"c_attn", "mlp.c_proj"}, 0.2f) : models::Tuning());
}

/// Two nodes of two rows, one group on each.
actors::TrainerOptions run_of(int stages, const char* sharding) {
  auto options = small_run({stages, rows}, sharding);
  options.batch_size = 4 * rows;
  options.microbatch_size = 1;
  options.steps = options.learning_rate.steps = 3;
  options.eval_every = 1;
  options.eval_samples = 5;
  options.group_size = 2;
  for (int rank = 0; rank < stages * rows; ++rank) options.node_of.push_back(rank / 2 % 2);
  options.algorithms = {"ring", "ring", "ring"};  // the same order of sums in all jobs
  options.tiers.bucket_elements = 600;
  options.tiers.files.make = [](runtime::EventLoop& loop, int rank) {
    return std::make_unique<offload::tests::SimulatedFiles>(
        loop, [random = std::mt19937_64(static_cast<std::uint64_t>(rank))]() mutable {
          return std::chrono::microseconds(random() % 500);
        });
  };
  return options;
}

}  // namespace

TEST_CASE("a second copy on any tier gives the bits of zero3, for any tier of the first and any schedule") {
  tests::Share share(1, 12);
  struct Schedule {
    int stages, chunks;
    Policy policy;
  };
  const Schedule schedules[] = {{1, 1, Policy::one_f_one_b},   {1, 1, Policy::message_driven},
                                {2, 1, Policy::one_f_one_b},   {2, 2, Policy::message_driven},
                                {2, 2, Policy::gpipe},         {3, 1, Policy::zb_h1},
                                {2, 1, Policy::message_driven}};
  const RandomTokens tokens(8, 37);
  std::uint64_t seed = 0;
  for (const bool frozen : {false, true}) {
    const auto architecture = model_of(frozen);
    const auto reference = run_simulated(architecture, tokens, run_of(1, "zero3"), 1);
    for (const TierKind parameters : {TierKind::device, TierKind::host, TierKind::nvme}) {
      for (const TierKind secondary : {TierKind::device, TierKind::host}) {
        for (const auto& [stages, chunks, policy] : schedules) {
          ++seed;
          if (!share.takes()) continue;
          INFO("frozen ", frozen, ", parameters ", offload::to_string(parameters), ", secondary ",
               offload::to_string(secondary), ", stages ", stages, ", chunks ", chunks, ", policy ",
               actors::to_string(policy));
          auto options = run_of(stages, "zero++");
          options.chunks_per_rank = chunks;
          options.policy = policy;
          options.prefetch = static_cast<int>(seed % 3);
          options.reuse = seed % 2 == 0;
          options.recompute = seed % 5 == 0 ? 1 : 0;
          options.tiers.parameters = parameters;
          options.tiers.secondary = secondary;
          check_same_bits(reference, run_simulated(architecture, tokens, options, seed, {}, Devices::delayed));
        }
      }
    }
  }
}

TEST_CASE("with a second copy in host memory, the device holds what it holds under zero3, to the byte") {
  for (const bool frozen : {false, true}) {
    const auto architecture = model_of(frozen);
    for (const int stages : {1, 2}) {
      auto options = run_of(stages, "zero3");
      for (int rank = 0; rank < options.grid.ranks(); rank += 3) {
        CAPTURE_ALL(frozen, stages, rank);
        options.sharding = parse_sharding("zero3");
        options.tiers.secondary = TierKind::device;
        const auto zero3 = plan_of(architecture, options, rank);
        options.sharding = parse_sharding("zero++");
        const auto device = plan_of(architecture, options, rank);
        options.tiers.secondary = TierKind::host;
        const auto host = plan_of(architecture, options, rank);
        std::size_t bytes = 0, in_blocks = 0;  // a unit's part in its group
        for (const actors::UnitState& unit : zero3.states->all()) {
          const std::size_t part = unit.elements / 2 * sizeof(float);
          bytes += part;
          CHECK(host.tiers.bytes(TierKind::host) >= bytes);
          in_blocks += part + unit.cut.buckets() * offload::Tier::block_bytes;
        }
        CHECK(host.memory.bytes(MemorySpace::device) == zero3.memory.bytes(MemorySpace::device));
        CHECK(device.memory.bytes(MemorySpace::device) == zero3.memory.bytes(MemorySpace::device) + bytes);
        CHECK(host.tiers.bytes(TierKind::host) < in_blocks);
        CHECK(host.memory.bytes(MemorySpace::pinned) ==
              zero3.memory.bytes(MemorySpace::pinned) + host.tiers.bytes(TierKind::host));
      }
    }
  }
}

TEST_CASE("without a tier of its own, the second copy is where the parameters are") {
  const auto architecture = model_of(false);
  for (const TierKind parameters : {TierKind::host, TierKind::nvme}) {
    auto options = run_of(1, "zero++");
    options.tiers.parameters = parameters;
    const auto copied = plan_of(architecture, options, 0).tiers.bytes(parameters);
    options.tiers.secondary = TierKind::host;
    const auto in_host = plan_of(architecture, options, 0);
    options.sharding = parse_sharding("zero3");
    const auto single = plan_of(architecture, options, 0).tiers.bytes(parameters);
    CHECK(copied >= 2 * single);
    CHECK(in_host.tiers.bytes(parameters) == (parameters == TierKind::host ? copied : single));
    if (parameters == TierKind::nvme) CHECK(in_host.tiers.bytes(TierKind::host) >= single);
  }
}

TEST_CASE("checkpoints do not contain the second copy, and runs resume with and without it") {
  auto options = run_of(2, "zero3");
  options.steps = options.learning_rate.steps = 4;
  options.eval_every = 0;
  CheckpointedJob job{.every = 2, .tuning = models::make_tuning("^h.2|ln_f", "")};
  const auto whole = run_checkpointed(small_gpt(3), options, job, 1);
  options.sharding = parse_sharding("zero++");
  options.tiers.secondary = TierKind::host;
  const auto copied = run_checkpointed(small_gpt(3), options, job, 2, Devices::delayed);
  CHECK((copied.states == whole.states));
  for (const Policy policy : {Policy::one_f_one_b, Policy::message_driven}) {
    options.policy = policy;
    for (const char* sharding : {"zero3", "zero++"}) {
      CAPTURE(std::string(sharding));
      options.sharding = parse_sharding(sharding);
      job.from = &copied.states.at(2);
      const auto late = run_checkpointed(small_gpt(3), options, job, 3, Devices::delayed);
      CHECK(late.job.weights == whole.job.weights);
      CHECK((late.states.at(4) == whole.states.at(4)));
    }
  }
}
