// Real ranks, which compute and send real data, with the durations of a prediction: their operations are the
// prediction's, in the same order and at the same times.
#include "actors/predict/predicted_job.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/timed_device.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/test.hpp"

#include <deque>

using namespace ranvier;
using namespace ranvier::actors;
using runtime::Bytes;
using runtime::ConstBytes;
using runtime::Duration;

namespace {

/// A rank's call of its transport.
struct Operation {
  bool receives = false;
  int peer = 0;
  runtime::Tag tag;
  std::size_t bytes = 0;
  Duration time{};

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Contents of the messages under way in a job, since simulated ones with computed delays carry only sizes.
using Contents =
    std::map<std::tuple<int, int, runtime::Channel, std::uint32_t>, std::deque<std::vector<std::byte>>>;

/// A cluster's transport that keeps a record, and with `contents` brings what was sent.
class RecordingTransport final : public tests::ForwardingTransport {
 public:
  RecordingTransport(runtime::Transport& transport, const runtime::VirtualTime& time, Contents* contents,
                     std::vector<Operation>& record)
      : ForwardingTransport(transport), time_(time), contents_(contents), record_(record) {}

  void send(int peer, runtime::Tag tag, std::span<const ConstBytes> ranges, runtime::Handler done) override {
    record_.push_back({false, peer, tag, runtime::bytes_of(ranges), time_.now()});
    if (contents_ != nullptr) {
      auto& message = (*contents_)[{rank(), peer, tag.channel, tag.index}].emplace_back();
      for (const ConstBytes range : ranges) message.insert(message.end(), range.begin(), range.end());
    }
    ForwardingTransport::send(peer, tag, ranges, std::move(done));
  }
  void receive(int peer, runtime::Tag tag, std::span<const Bytes> ranges, runtime::Handler done) override {
    record_.push_back({true, peer, tag, runtime::bytes_of(ranges), time_.now()});
    if (contents_ == nullptr) return ForwardingTransport::receive(peer, tag, ranges, std::move(done));
    std::vector<Bytes> places(ranges.begin(), ranges.end());
    ForwardingTransport::receive(peer, tag, ranges,
                                 [this, peer, tag, places = std::move(places), done = std::move(done)] {
                                   auto& messages = contents_->at({peer, rank(), tag.channel, tag.index});
                                   auto next = messages.front().begin();
                                   for (const Bytes place : places) {
                                     std::copy_n(next, place.size(), place.begin());
                                     next += static_cast<std::ptrdiff_t>(place.size());
                                   }
                                   messages.pop_front();
                                   done();
                                 });
  }

 private:
  const runtime::VirtualTime& time_;
  Contents* contents_;
  std::vector<Operation>& record_;
};

struct Run {
  std::vector<std::vector<Operation>> operations;  ///< by rank
  std::vector<StepResult> steps;                   ///< steps of rank 0
  std::vector<Duration> ends;                      ///< end times of the steps, on rank 0
};

struct Machine {
  runtime::MachineProfile profile;
  Disturbances disturbances;
};

/// Two nodes of two cores each; the work and the messages of a step take similar times.
Machine machine(std::uint64_t seed) {
  Machine machine;
  runtime::MachineProfile& profile = machine.profile;
  profile.name = "test";
  profile.cores = 2;
  profile.threads = 1;
  profile.handler_seconds = 2e-6;
  profile.rates[runtime::DType::f32].fill(
      {.launch_seconds = 1e-6, .flops_per_second = 1e9, .bytes_per_second = 1e9});
  profile.host_rates.fill({.launch_seconds = 1e-6, .flops_per_second = 1e9, .bytes_per_second = 2e9});
  profile.links.intra_node = {.latency_seconds = 2e-6, .bytes_per_second = 3e8, .node_bytes_per_second = 4e8};
  profile.links.inter_node = {.latency_seconds = 2e-5, .bytes_per_second = 1e8, .node_bytes_per_second = 1e8};
  machine.disturbances = {.seed = seed, .jitter = 0.5, .slow_ranks = {1, 1, 1.3}};
  return machine;
}

enum class Devices {
  phantom,          ///< as in predict()
  loaded_phantoms,  ///< load weights first, which takes time
  computing,        ///< load weights and compute
};

/// Runs the job as PredictedJob does.
Run run_on_cluster(const models::GptOptions& gpt, const TrainerOptions& options, const Machine& machine,
                   Devices kind) {
  const bool computes = kind == Devices::computing;
  const auto& [profile, disturbances] = machine;
  const models::Architecture architecture = make_gpt(gpt);
  const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const runtime::ProfileCosts costs(profile);
  const int ranks = options.grid.ranks();
  runtime::Simulation cluster({.node_of = options.node_of,
                               .links = profile.links,
                               .cores = {.cores = profile.cores, .alone = profile.threads},
                               .handler_seconds = profile.handler_seconds});
  Run run;
  run.operations.resize(static_cast<std::size_t>(ranks));
  Contents contents;
  std::deque<RecordingTransport> transports;
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<Rank>> all;
  for (int r = 0; r < ranks; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    transports.emplace_back(cluster.transport(r), cluster.time(), computes ? &contents : nullptr,
                            run.operations[rank]);
    const double slowness = rank < disturbances.slow_ranks.size() ? disturbances.slow_ranks[rank] : 1;
    std::unique_ptr<runtime::Device> phantom =
        make_phantom_device(cluster.time(), cluster.cores(r), cluster.space(),
                            {.threads = profile.threads,
                             .costs = &costs,
                             .host_costs = &costs,
                             .slowness = slowness,
                             .jitter = disturbances.jitter,
                             .seed = disturbances.seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(r)});
    if (computes) phantom = std::make_unique<tests::TimedDevice>(std::move(phantom));
    devices.push_back(std::move(phantom));
    all.push_back(std::make_unique<Rank>(cluster.loop(r), transports.back(), *devices.back(), Rank::Samples{tokens},
                                         plan_rank(architecture, tokens.sample_bytes(), options, r)));
    if (kind == Devices::phantom) continue;
    tests::load_initial_weights(*all.back(), options.seed);
  }
  for (int r = 0; r < ranks; ++r) {
    cluster.loop(r).post([&, r] {
      all[static_cast<std::size_t>(r)]->start({.step =
                                                   [&, r](const StepResult& step) {
                                                     if (r != 0) return;
                                                     run.steps.push_back(step);
                                                     run.ends.push_back(cluster.time().now());
                                                   },
                                               .done = [&, r] { cluster.loop(r).stop(); }});
    });
  }
  cluster.run();
  for (const auto& [route, messages] : contents) CHECK(messages.empty());
  return run;
}

/// The first operation in which they differ is the most useful one to print.
void check_same(const std::vector<Operation>& real, const std::vector<Operation>& predicted) {
  REQUIRE(real.size() == predicted.size());
  for (std::size_t i = 0; i < real.size(); ++i) {
    if (real[i] == predicted[i]) continue;
    CAPTURE(i);
    CHECK(to_string(real[i].tag) == to_string(predicted[i].tag));
    CHECK(real[i].receives == predicted[i].receives);
    CHECK(real[i].peer == predicted[i].peer);
    CHECK(real[i].bytes == predicted[i].bytes);
    CHECK(real[i].time.count() == predicted[i].time.count());
    return;
  }
}

}  // namespace

TEST_CASE("a real job with a prediction's durations runs the predicted operations, at the same times") {
  struct Grid {
    int stages, rows;
    std::vector<int> node_of;
  };
  const Grid grids[] = {{1, 2, {0, 1}},       {2, 1, {0, 1}},       {4, 1, {0, 0, 1, 1}},
                        {2, 2, {0, 0, 1, 1}}, {1, 4, {0, 0, 1, 1}}, {2, 4, {0, 0, 1, 1, 2, 2, 3, 3}}};
  tests::Share share(tests::long_run() ? 1 : 19, 95);
  std::size_t jobs = 0, operations = 0, seeds = 0;
  for (const Grid& grid : grids) {
    for (const char* shard : {"ddp", "zero1", "zero2", "zero3", "mics", "paro-iig"}) {
      for (const Policy policy :
           {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe, Policy::zero_bubble, Policy::zb_h1}) {
        for (const int microbatch : {1, 2}) {
          for (const int recompute : {0, 1}) {
            const collectives::Sharding sharding = collectives::parse_sharding(shard);
            const bool groups = grid.rows == 4;
            if (!groups && (std::string(shard) == "mics" || std::string(shard) == "paro-iig")) continue;
            if (grid.stages == 1 && policy != Policy::one_f_one_b) continue;
            if (!share.takes()) continue;
            INFO("stages ", grid.stages, ", rows ", grid.rows, ", shard ", std::string(shard), ", policy ",
                 static_cast<int>(policy), ", microbatch ", microbatch, ", recompute ", recompute);
            TrainerOptions options = tests::small_run({.g_inter = grid.stages, .g_data = grid.rows});
            options.node_of = grid.node_of;
            options.microbatch_size = microbatch;
            options.batch_size = 4 * grid.rows;
            options.policy = policy;
            options.chunks_per_rank =
                grid.stages == 2 && policy != Policy::zb_h1 ? 1 + static_cast<int>(jobs % 2) : 1;
            options.pipeline_limit = options.chunks_per_rank > 1 ? 0 : grid.stages;
            options.recompute = recompute;
            options.sharding = sharding;
            options.group_size = groups ? 2 : 0;
            options.steps = 3;
            options.learning_rate.steps = 3;
            if (jobs % 3 == 1) options.tiers = {.optimizer = TierKind::host, .activations = TierKind::device};
            options.tiers.parameters = jobs % 3 == 2 ? TierKind::host : TierKind::device;
            const models::GptOptions gpt = tests::small_gpt();
            const std::uint64_t seed = ++seeds;
            const Machine on = machine(seed);

            const Run real = run_on_cluster(gpt, options, on, Devices::computing);
            const Run predicted = run_on_cluster(gpt, options, on, Devices::loaded_phantoms);
            for (std::size_t r = 0; r < real.operations.size(); ++r) {
              CAPTURE(r);
              check_same(real.operations[r], predicted.operations[r]);
              operations += real.operations[r].size();
            }
            CHECK(real.ends == predicted.ends);

            // The job did train.
            const auto trained = tests::run_simulated(gpt, options, seed);
            REQUIRE(real.steps.size() == trained.steps.size());
            for (std::size_t s = 0; s < real.steps.size(); ++s) {
              CHECK(real.steps[s].loss == trained.steps[s].loss);
              CHECK(real.steps[s].gradient_norm == trained.steps[s].gradient_norm);
            }

            // And predict() gives the operations of its phantom devices, which start without weights.
            const Run begun = run_on_cluster(gpt, options, on, Devices::phantom);
            const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
            const Prediction prediction =
                predict(make_gpt(gpt), tokens, options, on.profile, {.steps = 3, .disturbances = on.disturbances});
            CHECK(prediction.step_seconds == runtime::seconds(begun.ends[2] - begun.ends[1]));
            for (std::size_t r = 0; r < real.operations.size(); ++r)
              CHECK(begun.operations[r].size() == real.operations[r].size());
            ++jobs;
          }
        }
      }
    }
  }
  CHECK(jobs > 2);
  CHECK(operations > 100);
}
