// Which ranks the watchdogs of a job name, in virtual time, and which they leave alone.
#include "actors/watch/watchdog.hpp"
#include "runtime/liveness/time_limits.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/delayed_device.hpp"
#include "tests/doubles/forwarding.hpp"
#include "tests/doubles/simulated_tier.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr runtime::Duration timeout = 100ms;
constexpr runtime::Duration quick = 20us;

/// Loses one message.
class LosingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  /// The first message of the channel after `when` is never sent.
  void lose(const runtime::EventLoop& loop, runtime::Channel channel, runtime::Duration when) {
    loop_ = &loop;
    channel_ = channel;
    when_ = when;
  }

  using Transport::receive;
  using Transport::send;
  void send(int peer, runtime::Tag tag, std::span<const runtime::ConstBytes> ranges,
            runtime::Handler done) override {
    if (loop_ != nullptr && tag.channel == channel_ && loop_->now() >= when_) {
      loop_ = nullptr;
      return;
    }
    ForwardingTransport::send(peer, tag, ranges, counted(tag, std::move(done)));
  }
  void receive(int peer, runtime::Tag tag, std::span<const runtime::Bytes> ranges, runtime::Handler done) override {
    ForwardingTransport::receive(peer, tag, ranges, counted(tag, std::move(done)));
  }

 private:
  runtime::Handler counted(runtime::Tag tag, runtime::Handler done) {
    return [this, tag, done = std::move(done)] {
      count_completed(tag);
      done();
    };
  }

  const runtime::EventLoop* loop_ = nullptr;
  runtime::Channel channel_{};
  runtime::Duration when_{};
};

/// Failure or slowness of one rank.
struct Trouble {
  int rank = 0;
  runtime::Duration slow = quick;        ///< maximum time of a piece of work on its streams
  std::string stalled_stream;            ///< stops working in the middle of the job; empty: none
  runtime::Duration stalled_after{};     ///< time after which it stops
  std::optional<runtime::Channel> lost;  ///< a message of this channel is never sent
  std::optional<actors::TrainerOptions::Fault::Kind> fault;
};

struct Job {
  runtime::GridShape grid{1, 2};
  std::string sharding = "ddp";
  std::uint64_t seed = 1;
  Trouble trouble = {};
  runtime::Duration longest_message = 500us;
  runtime::Duration slow_everywhere = quick;
  actors::Policy policy = actors::Policy::message_driven;
  actors::TierOptions tiers = {};              ///< files of SimulatedFiles
  runtime::Duration longest_transfer = quick;  ///< longest time of a transfer
  std::int64_t checkpoint_every = 0;           ///< interval in steps; 0: no checkpoints
  runtime::Duration longest_put = quick;       ///< longest time of writing a piece of a checkpoint
};

/// Accepts the pieces of checkpoints, each after a while, and keeps none.
class SlowTarget final : public actors::CheckpointTarget, public runtime::ProgressSource {
 public:
  SlowTarget(runtime::EventLoop& loop, std::function<runtime::Duration()> delay)
      : loop_(&loop), delay_(std::move(delay)) {}

  void prepare(std::int64_t) override {}
  void open(std::int64_t, runtime::Handler opened) override { later("making a file", std::move(opened)); }
  void put(const actors::StatePiece&, std::size_t, std::span<const std::byte>, std::uint64_t,
           runtime::Handler done) override {
    later("writing a piece", std::move(done));
  }
  void close(std::function<void(actors::CheckpointShare)> done) override {
    later("making files last", [done = std::move(done)] { done({}); });
  }
  std::string commit(std::int64_t, std::span<const actors::StateScalar>,
                     std::span<const actors::CheckpointShare>) override {
    return {};
  }
  void discard(std::int64_t) noexcept override {}

  std::string place() const override { return "a slow disk"; }
  std::uint64_t done() const noexcept override { return done_; }

 private:
  void later(const char* what, runtime::Handler then) {
    const runtime::Handler end =
        loop_->ends({.part = "checkpoint", .text = what, .patience = runtime::checkpoint_patience}, *this,
                    [this, then = std::move(then)] {
                      ++done_;
                      then();
                    });
    loop_->after(delay_(), end);
  }

  runtime::EventLoop* loop_;
  std::function<runtime::Duration()> delay_;
  std::uint64_t done_ = 0;
};

/// Random durations up to `longest`.
std::function<runtime::Duration()> drawn(std::uint64_t seed, runtime::Duration longest) {
  return [random = std::make_shared<std::mt19937_64>(seed), longest] {
    return runtime::Duration(
        static_cast<runtime::Duration::rep>((*random)() % static_cast<std::uint64_t>(longest.count())));
  };
}

struct Watched {
  std::int64_t steps = 0;
  int checkpoints = 0;               ///< number of complete checkpoints
  std::string error;                 ///< message of the watchdogs; empty: none
  std::vector<std::string> reports;  ///< by rank, in the middle of the job
};

Watched run_watched(const Job& job) {
  auto options = small_run(job.grid, job.sharding);
  options.group_size = job.grid.g_data;
  options.policy = job.policy;
  options.tiers = job.tiers;
  options.tiers.files.directories = {"simulated"};
  options.tiers.files.make = [&job](runtime::EventLoop& loop, int rank) {
    return std::make_unique<offload::tests::SimulatedFiles>(
        loop, drawn(job.seed + static_cast<std::uint64_t>(rank), job.longest_transfer));
  };
  if (job.checkpoint_every > 0) options.checkpoint_staging = std::size_t{40} << 10;
  const Trouble& trouble = job.trouble;
  if (trouble.fault) options.fault = {.rank = trouble.rank, .step = 2, .kind = *trouble.fault};
  const auto architecture = models::make_gpt(small_gpt());
  const RandomTokens tokens(8, 37);
  const int ranks = job.grid.ranks();
  runtime::Simulation simulation(ranks, {.seed = job.seed, .longest_message_delay = job.longest_message});
  std::vector<std::unique_ptr<DelayedDevice>> devices;
  std::vector<std::unique_ptr<LosingTransport>> transports;
  std::vector<std::unique_ptr<SlowTarget>> targets;
  std::vector<std::unique_ptr<actors::Rank>> trainers;
  std::vector<std::unique_ptr<actors::Watchdog>> watchdogs;
  Watched result{.reports = std::vector<std::string>(static_cast<std::size_t>(ranks))};
  int running = ranks;
  for (int r = 0; r < ranks; ++r) {
    auto& loop = simulation.loop(r);
    const bool troubled = r == trouble.rank;
    devices.push_back(std::make_unique<DelayedDevice>(loop, job.seed + static_cast<std::uint64_t>(r),
                                                      troubled ? trouble.slow : job.slow_everywhere, 1));
    transports.push_back(std::make_unique<LosingTransport>(simulation.transport(r)));
    trainers.push_back(
        std::make_unique<actors::Rank>(loop, *transports.back(), *devices.back(), actors::Rank::Samples{tokens},
                                       actors::plan_rank(architecture, tokens.sample_bytes(), options, r)));
    auto* trainer = trainers.back().get();
    load_initial_weights(*trainer, options.seed);
    if (job.checkpoint_every > 0) {
      targets.push_back(
          std::make_unique<SlowTarget>(loop, drawn(2 * job.seed + static_cast<std::uint64_t>(r), job.longest_put)));
      trainer->add_checkpoints({.target = targets.back().get(),
                                .every = job.checkpoint_every,
                                .result = [&result](const actors::CheckpointResult& taken) {
                                  if (taken.failure.empty()) ++result.checkpoints;
                                }});
    }
    std::vector<int> peers;
    for (int other = 0; other < ranks; ++other) {
      if (other != r) peers.push_back(other);
    }
    watchdogs.push_back(std::make_unique<actors::Watchdog>(
        loop, *transports.back(), trainer->context().trace,
        actors::Watchdog::Options{.timeout = timeout,
                                  .peers = std::move(peers),
                                  .describe = [](int rank) { return fmt::format("rank {}", rank); },
                                  .waits = [trainer] { return trainer->waits(); },
                                  .details = [trainer](std::string_view part) { return trainer->details(part); },
                                  .waited_for = nullptr}));
    trainer->start({.step =
                        [&, r](const actors::StepResult& step) {
                          if (r == 0) result.steps = step.step;
                          const runtime::Duration soon = simulation.loop(r).now();
                          if (trouble.rank != r || step.step != 1) return;
                          if (!trouble.stalled_stream.empty())
                            devices[static_cast<std::size_t>(r)]->stall(trouble.stalled_stream,
                                                                        soon + trouble.stalled_after);
                          if (trouble.lost)
                            transports[static_cast<std::size_t>(r)]->lose(simulation.loop(r), *trouble.lost, soon);
                        },
                    .evaluation = nullptr,
                    .done =
                        [&] {
                          if (--running > 0) return;  // ranks that are done still reply
                          for (int rank = 0; rank < ranks; ++rank) simulation.loop(rank).stop();
                        }});
    loop.after(2ms, [&result, r, watchdog = watchdogs.back().get()] {
      result.reports[static_cast<std::size_t>(r)] = watchdog->report();
    });
  }
  try {
    simulation.run();
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

constexpr const char* watched_shardings[] = {"ddp", "zero1", "zero2", "zero3", "mics", "zero++"};

/// Work that is done when the test requests it.
class Disk final : public runtime::ProgressSource {
 public:
  std::string place() const override { return "a read of 4096 bytes at offset 8192 of /disk/states"; }
  std::uint64_t done() const noexcept override { return done_; }
  void move() { ++done_; }

 private:
  std::uint64_t done_ = 0;
};

/// Ranks of a line with watchdogs and without other work, except a read on the last rank.
struct Idle {
  explicit Idle(int ranks, const std::function<void()>& at_work = nullptr)
      : simulation(ranks, {.seed = 1, .longest_message_delay = 1ms}), loop(simulation.loop(ranks - 1)) {
    for (int r = 0; r < ranks; ++r) {
      actors::Watchdog::Options options{.timeout = timeout,
                                        .peers = {},
                                        .describe = [](int rank) { return fmt::format("rank {}", rank); },
                                        .waits = nullptr,
                                        .details = nullptr,
                                        .waited_for = nullptr,
                                        .at_work = at_work};
      for (const int neighbor : {r - 1, r + 1}) {
        if (neighbor >= 0 && neighbor < ranks) options.peers.push_back(neighbor);
      }
      traces.push_back(std::make_unique<runtime::Trace>(r, simulation.loop(r)));
      watchdogs.push_back(
          std::make_unique<actors::Watchdog>(simulation.loop(r), simulation.transport(r), *traces.back(), options));
    }
  }

  void begin_read(int patience = 1) {
    end_read = loop.ends({.part = "tiers", .text = "a read of a file", .patience = patience}, disk, [] {});
  }
  /// The last rank reads for 15 timeouts.
  void read_slowly() {
    begin_read();
    for (int i = 1; i <= 20; ++i) loop.after(i * timeout * 3 / 4, [this] { disk.move(); });
    loop.after(15 * timeout, end_read);
  }
  [[nodiscard]] std::string error() {
    return error_of([this] { simulation.run(); }).what();
  }

  runtime::Simulation simulation;
  runtime::EventLoop& loop;  ///< the last rank's
  std::vector<std::unique_ptr<runtime::Trace>> traces;
  std::vector<std::unique_ptr<actors::Watchdog>> watchdogs;
  Disk disk;
  runtime::Handler end_read;
};

}  // namespace

TEST_CASE("a rank whose streams are slower than the timeout is working, regardless of their work") {
  for (const char* sharding : {"ddp", "zero1", "zero2", "zero3", "mics", "GNI", "zero++"}) {
    for (int seed = 1; seed <= effort(2, 6, 1); ++seed) {
      INFO("sharding ", sharding, ", seed ", seed);
      // A single item takes less than the timeout, a pass far longer.
      const Watched watched = run_watched(
          {.sharding = sharding, .seed = static_cast<std::uint64_t>(seed), .trouble = {.rank = 1, .slow = 80ms}});
      CHECK(watched.error == "");
      CHECK(watched.steps == 2);
    }
  }
}

TEST_CASE("a healthy job is left alone for any length of its delays") {
  const int seeds = effort(500, 10000, 20);
  for (int i = 0; i < seeds; ++i) {
    const auto seed = static_cast<std::uint64_t>(i + 1);
    std::mt19937_64 random(seed);
    const runtime::GridShape grids[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}};
    using enum actors::TierKind;
    constexpr std::array kinds{device, host, nvme};
    // Half of the jobs keep all states on the device and write no checkpoints.
    const bool leaves = random() % 2 == 0;
    actors::TierOptions tiers;
    if (leaves) {
      tiers.optimizer = kinds[random() % 3];
      tiers.gradients = kinds[random() % 3];
      tiers.parameters = kinds[random() % 3];
      if (tiers.optimizer != device && random() % 2 == 0) tiers.step = actors::StepLocation::host;
      tiers.bucket_elements = std::size_t{256} << random() % 4;
    }
    const Job job{.grid = grids[random() % 5],
                  .sharding = watched_shardings[random() % 6],
                  .seed = seed,
                  .trouble = {.rank = static_cast<int>(random() % 2), .slow = random() % 2 == 0 ? 90ms : 20us},
                  .longest_message = random() % 2 == 0 ? 20ms : 1ms,
                  .slow_everywhere = random() % 2 == 0 ? 60ms : 20us,
                  .policy = std::array{actors::Policy::message_driven, actors::Policy::zero_bubble,
                                       actors::Policy::zb_h1}[seed % 3],
                  .tiers = tiers,
                  // Disks have a longer timeout.
                  .longest_transfer = random() % 2 == 0 ? 250ms : 1ms,
                  .checkpoint_every = leaves ? static_cast<std::int64_t>(random() % 2) : 0,
                  .longest_put = random() % 2 == 0 ? 1s : 1ms};
    INFO("seed ", seed, ", optimizer ", std::string(to_string(tiers.optimizer)), ", gradients ",
         std::string(to_string(tiers.gradients)), ", parameters ", std::string(to_string(tiers.parameters)),
         ", g_inter ", job.grid.g_inter, ", g_data ", job.grid.g_data, ", sharding ", job.sharding);
    const Watched watched = run_watched(job);
    CHECK(watched.error == "");
    CHECK(watched.steps == 2);
    CHECK(watched.checkpoints == 2 * job.checkpoint_every);
  }
}

TEST_CASE("a stream whose work does not end is named by its own rank, with the work") {
  for (const runtime::GridShape grid : {runtime::GridShape{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
    for (const char* stream : {"compute", "load", "reduce"}) {
      const int last = grid.ranks() - 1;
      if (std::string(stream) == "reduce" && grid.g_data == 1) continue;
      INFO("g_inter ", grid.g_inter, ", g_data ", grid.g_data, ", stream ", stream);
      const Watched watched =
          run_watched({.grid = grid, .sharding = "zero2", .trouble = {.rank = last, .stalled_stream = stream}});
      CAPTURE(watched.error);
      CHECK(watched.error.starts_with(fmt::format("rank {} stands still: ", last)));
      check_has(watched.error, {fmt::format("stream '{}', unfinished for", stream), "no progress there for"});
    }
  }
}

TEST_CASE("deferred weight gradients that do not end are named, with their microbatch and layer") {
  for (const actors::Policy policy : {actors::Policy::zero_bubble, actors::Policy::zb_h1}) {
    CAPTURE(actors::to_string(policy));
    int named = 0;
    for (int i = 0;; ++i) {
      CAPTURE(i);
      const Watched watched =
          run_watched({.grid = {2, 1},
                       .trouble = {.rank = i % 2, .stalled_stream = "compute", .stalled_after = i * 100us},
                       .policy = policy});
      if (watched.error.empty()) break;  // no computation was left
      CAPTURE(watched.error);
      CHECK(watched.error.starts_with(fmt::format("rank {} stands still: ", i % 2)));
      // After the last layer's call comes the end of the pass, which belongs to no layer.
      const auto weights = watched.error.find("pipeline: the weight gradients of microbatch ");
      named += weights != std::string::npos &&
               watched.error.find(", in the weight gradients of layer ") != std::string::npos;
    }
    CHECK(named > 0);
  }
}

TEST_CASE("a gradient that is never sent is named by a stage whose weight gradients are all done") {
  for (const actors::Policy policy : {actors::Policy::zero_bubble, actors::Policy::zb_h1}) {
    const Watched watched =
        run_watched({.grid = {3, 1}, .trouble = {.rank = 1, .lost = runtime::Channel::gradient}, .policy = policy});
    CAPTURE(watched.error);
    check_has(watched.error, {"the gradient of microbatch", "rank 1 "});
    check_lacks(watched.error, {"rank 2 is alive"});
  }
}

TEST_CASE("a message that is never sent is named by the rank that waits for it") {
  for (const auto& [channel, words] : {std::pair{runtime::Channel::activation, "the activation of microbatch"},
                                       std::pair{runtime::Channel::summary, "the agreement of all ranks"}}) {
    for (const runtime::GridShape grid : {runtime::GridShape{2, 1}, {2, 2}}) {
      INFO("words ", words, ", g_data ", grid.g_data);
      const Watched watched = run_watched({.grid = grid, .trouble = {.rank = 0, .lost = channel}});
      CAPTURE(watched.error);
      check_has(watched.error, {"has waited for", words, "rank 0 "});
    }
  }
}

TEST_CASE("a single idle rank without peers is ended, and a slow one is not") {
  Idle job(1);
  job.read_slowly();
  const std::string message = job.error();
  CHECK(job.loop.now() > 15 * timeout);
  CHECK(job.loop.now() < 17 * timeout);
  CHECK(message.starts_with("rank 0 stands still: it is idle and waits for no rank; no progress for"));
}

TEST_CASE("ranks that are all idle are ended, and not before the last of them is idle") {
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    Idle job(ranks);
    job.read_slowly();
    for (int r = 0; r < ranks; ++r)
      job.simulation.loop(r).after(30 * timeout, [&, r] { job.simulation.loop(r).stop(); });
    const std::string message = job.error();
    CAPTURE(message);
    CHECK(job.loop.now() > 16 * timeout);
    CHECK(job.loop.now() < 18 * timeout);
    check_has(message, {" stands still: it is idle and waits for no rank, like all other ranks; no progress for"});
  }
}

TEST_CASE("a read that does not return is named with file and offset, and later if it has a longer timeout") {
  for (const int patience : {1, 10}) {
    Idle job(1);
    job.begin_read(patience);
    const std::string message = job.error();
    CAPTURE(message);
    CHECK(
        message.starts_with("rank 0 stands still: tiers: a read of a file, a read of 4096 bytes at offset 8192 of "
                            "/disk/states, unfinished for"));
    CHECK(job.loop.now() >= patience * timeout);
    CHECK(job.loop.now() < (patience + 1) * timeout);
  }
}

TEST_CASE("without messages an idle rank is left alone, and a read that does not return is named") {
  int checks_at_work = 0;
  Idle job(1, [&] { ++checks_at_work; });
  job.loop.after(10 * timeout, [&] {
    CHECK(checks_at_work == 0);
    job.begin_read();
  });
  CHECK(job.error().starts_with("rank 0 stands still: tiers: a read of a file, "));
  CHECK(job.loop.now() < 12 * timeout);
  CHECK(checks_at_work == 5);  // every 20 ms until the timeout
}

TEST_CASE("a row that stops taking part is named, with the operations that wait for it") {
  for (const char* sharding : watched_shardings) {
    CAPTURE(sharding);
    const Watched watched = run_watched(
        {.sharding = sharding, .trouble = {.rank = 1, .fault = actors::TrainerOptions::Fault::Kind::hangs}});
    CAPTURE(watched.error);
    check_has(watched.error, {"rank 1 is alive but idle: rank 0 ", ", in "});
  }
}

TEST_CASE("a report has the pending work and the waits of each rank") {
  const Watched watched = run_watched({.grid = {2, 1}, .trouble = {.rank = 0, .slow = 80ms}});
  REQUIRE(watched.reports.size() == 2);
  INFO("watched.reports[0] ", watched.reports[0], ", watched.reports[1] ", watched.reports[1]);
  CHECK(watched.reports[0].starts_with("rank 0 is at work: "));
  check_has(watched.reports[0], {"stream '"});
  check_has(watched.reports[1], {"the activation of microbatch 0 from rank 0"});
}
