// Jobs in virtual time: their times compared with results by hand, their messages and memory with real jobs'.
#include "actors/predict/predicted_job.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"
#include "tests/actors/watched_ranks.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

#include <iterator>

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::tests;
using runtime::Channel;
using runtime::DType;
using runtime::MemorySpace;

namespace {

/// Costs with these rates: FLOPs of products and attention, bytes of other work. A rate of 0: no time.
CostsOf rates_of(double flops_per_second = 0, double bytes_per_second = 0) {
  return CostsOf([=](const runtime::WorkCost& cost) {
    double seconds = flops_per_second > 0 ? cost.flops / flops_per_second : 0;
    if (cost.flops == 0 && bytes_per_second > 0) seconds = cost.bytes / bytes_per_second;
    return seconds * 1e9;
  });
}

const CostsOf usual_rates = rates_of(1e9);

runtime::MachineProfile machine(const runtime::Link& link = instant_machine().links.intra_node) {
  runtime::MachineProfile profile = instant_machine();
  profile.links = {link, link};
  profile.peak_flops_per_second[DType::f32] = 1e9;
  return profile;
}

TrainerOptions job_of(int stages, int rows, int batch, int microbatch) {
  TrainerOptions options = small_run({.g_inter = stages, .g_data = rows});
  options.batch_size = batch;
  options.microbatch_size = microbatch;
  return options;
}

Prediction predicted(const models::GptOptions& gpt, const TrainerOptions& options,
                     const runtime::MachineProfile& profile, const runtime::CostModel& costs,
                     const PredictionOptions& how = {}) {
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  return PredictedJob(make_gpt(gpt), tokens, options, profile, {.costs = &costs}, how).run();
}

/// Checks the ratio of two durations of any length.
void check_ratio(double a, double b, double ratio, double tolerance) {
  INFO("a ", a, ", b ", b);
  CHECK(a / b > ratio * (1 - tolerance));
  CHECK(a / b < ratio * (1 + tolerance));
}

void refused(ErrorCode code, std::string_view words, const auto& what) {
  CHECK(says(error_of([&] { (void)what(); }), code, words));
}

}  // namespace

TEST_CASE("one rank takes the time of its layers' FLOPs") {
  const models::GptOptions gpt = small_gpt();
  constexpr double rate = 1e9;
  const double declared = 8 * make_gpt(gpt).flops_per_sample();
  for (const int microbatch : {1, 4, 8}) {
    const CostsOf rates = rates_of(rate);
    const Prediction one = predicted(gpt, job_of(1, 1, 8, microbatch), machine(), rates);
    // All pairs of positions and vectors are counted; one product of attention is computed again.
    check_ratio(one.step_seconds, declared / rate, 0.94, 0.02);
    check_ratio(one.model_flops_per_second, declared / one.step_seconds, 1, 1e-9);
    check_ratio(one.mfu, one.model_flops_per_second / 1e9, 1, 1e-9);
    CHECK(one.bubble < 1e-3);
    check_ratio(one.tokens_per_second, 8 * gpt.sequence_length / one.step_seconds, 1, 1e-9);
    REQUIRE(one.stages.size() == 1);
    // Attention computes one of its products again.
    check_ratio(one.stages[0].backward_seconds, one.stages[0].forward_seconds, 2.02, 0.01);
    check_ratio(one.stages[0].busy(), 1, 1, 1e-3);
    CHECK(one.messages == 0);
  }
}

TEST_CASE("two stages and one microbatch take four latencies where nothing else takes time") {
  // An activation, its gradient, the other stage's gradients of the tied embedding, and what both agree on.
  const CostsOf nothing = rates_of();
  constexpr runtime::Link far{.latency_seconds = 1, .bytes_per_second = 1e18, .node_bytes_per_second = 0};
  const Prediction two = predicted(small_gpt(), job_of(2, 1, 1, 1), machine(far), nothing);
  CHECK(two.step_seconds == doctest::Approx(4));
  CHECK(two.bubble == doctest::Approx(1));
  // Activation, gradient; both ends of the tied unit; two halves of the agreement.
  CHECK(two.messages == 6);
}

TEST_CASE("a pipeline idles while it fills and drains") {
  // The bubble of p stages and m microbatches is (p - 1) / (m + p - 1), with forward times of 1 and backward times of
  // 2. The layers' times differ a little, and weight gradients overlap what the next stage does.
  models::GptOptions gpt = small_gpt(14);
  gpt.vocab_size = 2;
  double before = 1;
  for (const int microbatches : {1, 2, 4, 16}) {
    TrainerOptions options = job_of(2, 1, microbatches, 1);
    options.policy = Policy::one_f_one_b;
    const Prediction two = predicted(gpt, options, machine(), usual_rates);
    const double bubble = 1.0 / (microbatches + 1);
    CHECK(two.bubble < bubble + 0.08);
    CHECK(two.bubble > bubble / 2 - 0.02);
    CHECK(two.bubble < before);
    before = two.bubble;
    CHECK(two.stages[0].busy() + two.stages[1].busy() == doctest::Approx(2 * (1 - two.bubble)));
  }
}

TEST_CASE("deferred weight gradients are separate from backward passes, and take the same time as in them") {
  TrainerOptions options = job_of(2, 1, 8, 1);
  options.policy = Policy::one_f_one_b;
  const Prediction together = predicted(small_gpt(6), options, machine(), usual_rates, {.trace = true});
  for (const Policy policy : {Policy::zero_bubble, Policy::zb_h1}) {
    options.policy = policy;
    const Prediction apart = predicted(small_gpt(6), options, machine(), usual_rates, {.trace = true});
    for (std::size_t s = 0; s < 2; ++s) {
      CHECK(together.stages[s].weights_seconds == 0);
      CHECK(apart.stages[s].weights_seconds > 0);
      check_ratio(apart.stages[s].backward_seconds + apart.stages[s].weights_seconds,
                  together.stages[s].backward_seconds, 1, 1e-6);
      check_has(apart.trace[s], {"\"weights 7\""});
      check_lacks(together.trace[s], {"\"weights "});
    }
  }
}

TEST_CASE("a slow rank holds up all others, and a slow link those that use it") {
  const TrainerOptions options = job_of(1, 2, 8, 2);
  const double usual = predicted(small_gpt(), options, machine(), usual_rates).step_seconds;
  const double slow =
      predicted(small_gpt(), options, machine(), usual_rates, {.disturbances = {.slow_ranks = {1, 2.5}}})
          .step_seconds;
  check_ratio(slow, usual, 2.5, 0.01);
  // A stage's busy fraction is the mean over its rows: one is always busy, the other for its fraction.
  const Prediction half =
      predicted(small_gpt(), options, machine(), usual_rates, {.disturbances = {.slow_ranks = {1, 2.5}}});
  CHECK(half.stages[0].busy() == doctest::Approx((1 + 1 / 2.5) / 2).epsilon(0.01));

  constexpr runtime::Link wire{.latency_seconds = 0, .bytes_per_second = 1e6, .node_bytes_per_second = 0};
  const CostsOf nothing = rates_of();
  TrainerOptions apart = options;
  apart.node_of = {0, 1};
  const Prediction waits = predicted(small_gpt(), apart, machine(wire), nothing);
  const double messages = waits.step_seconds;
  const double slow_link =
      predicted(small_gpt(), apart, machine(wire), nothing, {.disturbances = {.slow_nodes = {1, 3}}}).step_seconds;
  check_ratio(slow_link, messages, 3, 1e-3);
  // A ring all-reduce of two ranks moves all gradients once, both directions at a time, plus padding and agreement.
  const double bytes = 4.0 * static_cast<double>(make_gpt(small_gpt()).parameters());
  REQUIRE(waits.traffic.size() == 2);
  CHECK(waits.traffic[0].intra == 0);
  check_ratio(waits.traffic[0].inter, bytes, 1.06, 0.02);
  check_ratio(messages, waits.traffic[0].inter / 1e6, 1.02, 0.02);
}

TEST_CASE("messages in blocks take less time on slow links, over plans and NCCL, and their kernels take time") {
  constexpr runtime::Link slow{.latency_seconds = 0, .bytes_per_second = 1e6, .node_bytes_per_second = 1e6};
  using collectives::WireType;
  TrainerOptions options = job_of(1, 2, 8, 2);
  options.node_of = {0, 1};
  for (const bool nccl : {false, true}) {
    for (const char* sharding : {"ddp", "zero3"}) {
      INFO("nccl ", nccl, ", sharding ", std::string(sharding));
      options.sharding = collectives::parse_sharding(sharding);
      options.tiers.moments = DType::i8;  // pads units to blocks in both jobs
      options.wire = {};
      runtime::MachineProfile profile = machine(slow);
      profile.gpu = nccl;
      if (nccl) options.gpu = TrainerOptions::GpuMemory{.staged = true, .nccl = true};
      const auto seconds = [&](double bytes_per_second) {
        return predicted(small_gpt(), options, profile, rates_of(0, bytes_per_second)).step_seconds;
      };
      const double plain = seconds(0);
      options.wire = {.gather = {WireType::same, WireType::int8}, .reduce = {WireType::same, WireType::int8}};
      const double blocks = seconds(0);
      // The agreement is added. Virtual time lets NCCL's plans overlap with its own operations.
      check_ratio(blocks, plain, 260.0 / 1024, nccl ? 0.15 : 0.06);
      CHECK(seconds(1e8) > blocks);
    }
  }
}

TEST_CASE("NCCL's transfers do not count as messages") {
  TrainerOptions options = job_of(1, 2, 8, 2);
  options.node_of = {0, 1};
  runtime::MachineProfile profile = machine();
  profile.gpu = true;
  options.gpu = TrainerOptions::GpuMemory{.staged = true};
  const Prediction plans = predicted(small_gpt(), options, profile, rates_of());
  options.gpu->nccl = true;
  const Prediction nccl = predicted(small_gpt(), options, profile, rates_of());
  const double bytes = 4.0 * static_cast<double>(make_gpt(small_gpt()).parameters());
  REQUIRE(nccl.traffic.size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    check_ratio(nccl.traffic[rank].nccl_inter, bytes, 1.06, 0.02);
    CHECK(nccl.traffic[rank].nccl_intra == 0);
    CHECK(plans.traffic[rank].nccl_inter == 0);
    // The agreement after a batch is still a message.
    CHECK(nccl.traffic[rank].inter > 0);
    CHECK(nccl.traffic[rank].inter < 1000);
    CHECK(plans.traffic[rank].inter ==
          doctest::Approx(nccl.traffic[rank].inter + nccl.traffic[rank].nccl_inter).epsilon(0.02));
  }
  CHECK(nccl.messages == 2);
}

TEST_CASE("jitter is repeatable by its seed") {
  const auto step = [&](std::uint64_t seed, double jitter) {
    return predicted(small_gpt(), job_of(2, 2, 8, 1), machine(), usual_rates,
                     {.disturbances = {.seed = seed, .jitter = jitter}})
        .step_seconds;
  };
  CHECK(step(1, 0.1) == step(1, 0.1));
  CHECK(step(1, 0.1) != step(2, 0.1));
  CHECK(step(1, 0.1) > step(1, 0));  // a late rank delays the others
  CHECK(step(1, 0) == step(2, 0));
}

TEST_CASE("ranks with more threads than a node has cores take longer, and not on two nodes") {
  runtime::MachineProfile profile = machine();
  TrainerOptions options = job_of(1, 2, 8, 2);
  const double usual = predicted(small_gpt(), options, profile, usual_rates).step_seconds;
  profile.cores = 1;
  check_ratio(predicted(small_gpt(), options, profile, usual_rates).step_seconds, usual, 2, 0.01);
  options.node_of = {0, 1};
  check_ratio(predicted(small_gpt(), options, profile, usual_rates).step_seconds, usual, 1, 0.01);
}

namespace {

/// Messages of a rank under each tag to each rank, in order, and the order of messages between stages.
struct Sends {
  std::map<std::tuple<int, Channel, std::uint32_t>, std::vector<std::size_t>> by_tag;
  std::vector<std::tuple<Channel, std::uint32_t>> between_stages;

  friend bool operator==(const Sends&, const Sends&) = default;
};

/// By rank, in a simulation with drawn or with computed delays.
std::vector<Sends> sends_of(runtime::Simulation& cluster, const models::Architecture& architecture,
                            const TrainerOptions& options, const WatchedRanks::MakeDevice& make_device) {
  const RandomTokens tokens(architecture.positions, 37);
  std::vector<Sends> sends(static_cast<std::size_t>(options.grid.ranks()));
  WatchedRanks ranks(
      cluster, architecture, tokens, options,
      [&](int rank, int peer, runtime::Tag tag, std::size_t bytes) {
        Sends& own = sends[std::size_t(rank)];
        own.by_tag[{peer, tag.channel, tag.index}].push_back(bytes);
        if (tag.channel == Channel::activation || tag.channel == Channel::gradient)
          own.between_stages.emplace_back(tag.channel, tag.index);
      },
      make_device);
  ranks.run();
  return sends;
}

}  // namespace

TEST_CASE("a job in virtual time sends the messages of a job that computes, in the same order") {
  struct Case {
    const char* shard;
    Policy policy;
    int stages, rows;
  };
  const Case cases[] = {{"ddp", Policy::one_f_one_b, 3, 1},
                        {"zero3", Policy::one_f_one_b, 2, 2},
                        {"paro-iig", Policy::gpipe, 2, 4},
                        {"zero3", Policy::zb_h1, 3, 2},
                        {"zero2", Policy::message_driven, 1, 4}};
  const CostsOf rates = rates_of(1e9, 1e10);
  for (const Case& each : cases) {
    CAPTURE(each.shard);
    TrainerOptions options = job_of(each.stages, each.rows, 8, 1);
    options.policy = each.policy;
    options.sharding = collectives::parse_sharding(each.shard);
    options.group_size = each.rows == 4 ? 2 : 0;
    const models::Architecture architecture = make_gpt(small_gpt());

    runtime::Simulation simulation(options.grid.ranks(), {.seed = 3});
    const auto computed =
        sends_of(simulation, architecture, options, [](int) { return runtime::make_inline_device(); });
    const std::vector<int> nodes(static_cast<std::size_t>(options.grid.ranks()), 0);
    runtime::Simulation cluster(
        {.node_of = nodes, .links = {{1e-5, 1e9, 0}, {}}, .cores = {.cores = 2}, .handler_seconds = 1e-6});
    const auto virtually =
        sends_of(cluster, architecture, options, [&](int rank) -> std::unique_ptr<runtime::Device> {
          return make_phantom_device(cluster.time(), cluster.cores(rank), cluster.space(), {.costs = &rates});
        });
    std::size_t messages = 0;
    for (std::size_t r = 0; r < computed.size(); ++r) {
      CHECK(virtually[r].by_tag == computed[r].by_tag);
      CHECK(virtually[r].between_stages == computed[r].between_stages);
      messages += computed[r].by_tag.size();
    }
    CHECK(messages > 0);
  }
}

TEST_CASE("memory equals the plan's, and needs that the machine cannot meet are refused") {
  TrainerOptions options = job_of(2, 2, 8, 2);
  options.tiers.optimizer = TierKind::host;
  options.tiers.parameters = TierKind::nvme;
  const models::GptOptions gpt = small_gpt();
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const models::Architecture architecture = make_gpt(gpt);
  std::size_t device = 0, host = 0, files = 0, of_all = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const RankPlan plan = plan_rank(architecture, tokens.sample_bytes(), options, rank);
    device = std::max(device, plan.memory.bytes(MemorySpace::device));
    host = std::max(host, plan.memory.bytes(MemorySpace::pinned) + plan.memory.bytes(MemorySpace::host));
    files = std::max(files, plan.memory.bytes(MemorySpace::nvme));
    of_all += plan.memory.bytes(MemorySpace::device) + plan.memory.bytes(MemorySpace::pinned) +
              plan.memory.bytes(MemorySpace::host);
  }
  runtime::MachineProfile profile = machine();
  profile.device_memory = device;
  profile.host_memory = of_all;
  profile.disk = 4 * files;
  const Prediction fits = predicted(gpt, options, profile, usual_rates);
  CHECK(fits.device_bytes == device);
  CHECK(fits.host_bytes == host);
  CHECK(fits.file_bytes == files);
  CHECK(files > 0);

  const auto run = [&] { return predicted(gpt, options, profile, usual_rates); };
  profile.device_memory = device - 1;
  refused(ErrorCode::memory, "device memory, but a machine of profile 'test' has", run);
  profile.device_memory = 0;
  profile.host_memory = of_all - 1;
  refused(ErrorCode::memory, "node 0 needs", run);
  profile.host_memory = 0;
  profile.disk = files;
  refused(ErrorCode::memory, " disk, but a machine", run);
}

TEST_CASE("a prediction that makes no sense is refused") {
  const TrainerOptions options = job_of(1, 2, 8, 2);
  const auto run = [&](const runtime::MachineProfile& profile, const PredictionOptions& how, TrainerOptions job) {
    return [=] { return predicted(small_gpt(), job, profile, usual_rates, how); };
  };
  refused(ErrorCode::usage, "use 2 or more", run(machine(), {.steps = 1}, options));
  refused(ErrorCode::usage, "jitter is negative: -1", run(machine(), {.disturbances = {.jitter = -1}}, options));
  refused(ErrorCode::usage, "needs NCCL collectives",
          run(machine(), {.disturbances = {.no_overlap = true}}, options));
  refused(ErrorCode::usage, "use a number above 0", run(machine(), {.disturbances = {.slow_ranks = {0}}}, options));
  refused(ErrorCode::usage, "no entry for links of class 'intra_node'", run(machine({}), {}, options));
  runtime::MachineProfile gpu = machine();
  gpu.gpu = true;
  refused(ErrorCode::usage, "describes a GPU, but the job is planned for CPUs", run(gpu, {}, options));
  TrainerOptions evaluation = options;
  evaluation.steps = 0;
  refused(ErrorCode::usage, "an evaluation cannot be predicted", run(machine(), {}, evaluation));
  TrainerOptions uneven = options;
  uneven.batch_size = 7;
  refused(ErrorCode::usage, "is not divisible by `g_data`", run(machine(), {}, uneven));
}

TEST_CASE("jobs of all shardings, tiers and kinds of devices complete in virtual time") {
  tests::Share share(4, 16);
  for (const bool gpu : {false, true}) {
    for (const char* const shard : {"ddp", "zero1", "zero3", "mics", "paro-iig", "zero++"}) {
      for (const TierKind tier : {TierKind::device, TierKind::host, TierKind::nvme}) {
        for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b}) {
          if (!share.takes()) continue;
          INFO("gpu ", gpu, ", shard ", shard, ", tier ", static_cast<int>(tier));
          models::GptOptions gpt = small_gpt();
          gpt.precision = {DType::bf16, DType::f32};
          TrainerOptions options = job_of(2, 4, 8, 1);
          options.precision = gpt.precision;
          options.policy = policy;
          options.sharding = collectives::parse_sharding(shard);
          options.group_size = 2;
          options.node_of = {0, 0, 1, 1, 2, 2, 3, 3};
          options.tiers.optimizer = options.tiers.parameters = options.tiers.gradients = tier;
          if (tier != TierKind::device) {
            options.recompute = 1;
            options.tiers.activations = tier;
          }
          runtime::MachineProfile profile = machine({1e-5, 1e8, 2e8});
          profile.gpu = gpu;
          profile.cores = 2;
          profile.handler_seconds = 1e-6;
          profile.read_bytes_per_second = profile.write_bytes_per_second = 1e8;
          if (gpu) options.gpu = TrainerOptions::GpuMemory{.staged = true, .nccl = policy == Policy::one_f_one_b};
          const CostsOf rates = rates_of(1e9, 1e9);
          const Prediction there = predicted(gpt, options, profile, rates);
          CHECK(there.step_seconds > 0);
          CHECK(there.bubble >= 0);
          CHECK(there.bubble < 1);
          CHECK(there.messages > 0);
          const auto any = [&](double RankTraffic::* bytes) {
            return std::ranges::any_of(there.traffic, [&](const RankTraffic& rank) { return rank.*bytes > 0; });
          };
          CHECK(there.traffic.size() == 8);
          CHECK(any(&RankTraffic::read) == (tier == TierKind::nvme));
          CHECK(any(&RankTraffic::written) == (tier == TierKind::nvme));
          // A GPU's messages and tiers in host memory use the link, and at least the samples do.
          CHECK(any(&RankTraffic::to_device) == gpu);
          CHECK(any(&RankTraffic::to_host) == gpu);
          if (tier == TierKind::nvme) {
            CHECK(there.file_bytes > 0);
            profile.read_bytes_per_second = profile.write_bytes_per_second = 1e6;
            CHECK(predicted(gpt, options, profile, rates).step_seconds > there.step_seconds);
          }
        }
      }
    }
  }
}

TEST_CASE("optimizer states within the budget use device memory instead of the link") {
  models::GptOptions gpt = small_gpt();
  gpt.precision = {DType::bf16, DType::f32};
  TrainerOptions options = job_of(1, 2, 8, 2);
  options.precision = gpt.precision;
  options.tiers.optimizer = TierKind::host;
  options.gpu = TrainerOptions::GpuMemory{.staged = true};
  runtime::MachineProfile profile = machine({1e-5, 1e8, 2e8});
  profile.gpu = true;
  std::vector<Prediction> all;
  for (const std::size_t budget : {0, 60'000, 1 << 30}) {
    options.tiers.optimizer_budget = budget;
    all.push_back(predicted(gpt, options, profile, rates_of(1e9, 1e9)));
  }
  for (std::size_t next = 1; next < all.size(); ++next) {
    CHECK(all[next].traffic[0].to_device < all[next - 1].traffic[0].to_device);
    CHECK(all[next].traffic[0].to_host < all[next - 1].traffic[0].to_host);
    CHECK(all[next].host_bytes < all[next - 1].host_bytes);
    CHECK(all[next].step_seconds <= all[next - 1].step_seconds);
  }
}

TEST_CASE("a second copy of parameters in host memory uses the link instead of device memory") {
  models::GptOptions gpt = small_gpt();
  gpt.precision = {DType::bf16, DType::f32};
  TrainerOptions options = job_of(1, 4, 8, 1);
  options.precision = gpt.precision;
  options.policy = Policy::one_f_one_b;
  options.node_of = {0, 0, 1, 1};
  options.group_size = 2;
  options.gpu = TrainerOptions::GpuMemory{.staged = true};
  runtime::MachineProfile profile = machine({1e-5, 1e8, 2e8});
  profile.gpu = true;
  const auto run = [&](const char* shard, TierKind secondary) {
    options.sharding = collectives::parse_sharding(shard);
    options.tiers.secondary = secondary;
    return predicted(gpt, options, profile, rates_of(1e9, 1e9));
  };
  const Prediction zero3 = run("zero3", TierKind::device), device = run("zero++", TierKind::device),
                   host = run("zero++", TierKind::host);
  CHECK(host.device_bytes == zero3.device_bytes);
  CHECK(device.device_bytes > zero3.device_bytes);
  CHECK(host.host_bytes > device.host_bytes);
  CHECK(host.traffic[0].to_device > device.traffic[0].to_device);
  CHECK(host.traffic[0].to_host > device.traffic[0].to_host);
}

TEST_CASE("64 ranks leave a trace of all of them") {
  models::GptOptions gpt = small_gpt(8);
  TrainerOptions options = job_of(8, 8, 64, 1);
  for (int rank = 0; rank < 64; ++rank) options.node_of.push_back(rank / 8);
  const CostsOf rates = rates_of(1e9, 1e10);
  const runtime::MachineProfile profile = machine({1e-5, 1e9, 4e9});
  CHECK(predicted(gpt, options, profile, rates).trace.empty());
  const Prediction prediction = predicted(gpt, options, profile, rates, {.trace = true});
  const TemporaryFolder folder;
  const auto path = folder.path() / "trace.json";
  prediction.write_trace(path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const boost::json::value json = runtime::parse_json(text, path.string());
  std::set<std::int64_t> ranks;
  for (const auto& event : json.at("traceEvents").as_array()) {
    if (event.at("ph") == "X" && event.at("name") == "forward 0") ranks.insert(event.at("pid").as_int64());
  }
  CHECK(ranks.size() == 64);
  refused(ErrorCode::usage, "has no trace", [&] { Prediction().write_trace(path); });
}

TEST_CASE("predict() takes the times of work from the profile") {
  runtime::MachineProfile profile = machine();
  auto& rates = profile.rates[DType::f32];
  rates[static_cast<std::size_t>(runtime::WorkKind::product)].flops_per_second = 1e9;
  rates[static_cast<std::size_t>(runtime::WorkKind::attention)].flops_per_second = 1e9;
  const models::GptOptions gpt = small_gpt();
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const TrainerOptions options = job_of(1, 1, 8, 2);
  const models::Architecture architecture = make_gpt(gpt);
  const double step = predict(architecture, tokens, options, profile).step_seconds;
  check_ratio(step, 8 * architecture.flops_per_sample() / 1e9, 0.93, 0.02);
}

TEST_CASE("a prediction ends once its caller stops waiting") {
  for (const int asked : {1, 5}) {
    int left = asked;
    const PredictionOptions how{.steps = 40, .goes_on = [&] { return --left > 0; }};
    bool ended = false;
    try {
      (void)predicted(small_gpt(), job_of(2, 2, 64, 1), machine(), usual_rates, how);
    } catch (const PredictionEnded&) {
      ended = true;
    }
    CHECK(ended);
    CHECK(left == 0);
  }
}

TEST_CASE("ranks that share a node slow each other down by the profile's factor") {
  runtime::MachineProfile profile = machine();
  profile.cores = 2;
  auto& rates = profile.rates[DType::f32];
  rates[static_cast<std::size_t>(runtime::WorkKind::product)] = {.flops_per_second = 1e9, .crowding = 1.5};
  rates[static_cast<std::size_t>(runtime::WorkKind::attention)] = {.flops_per_second = 1e9, .crowding = 1.5};
  const models::GptOptions gpt = small_gpt();
  const RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const models::Architecture architecture = make_gpt(gpt);
  const auto step = [&](int rows) {
    return predict(architecture, tokens, job_of(1, rows, 4 * rows, 2), profile).step_seconds;
  };
  check_ratio(step(2), step(1), 1.5, 0.02);
}
