// Whom the watchdog of a sharded job names, in virtual time.
#include "actors/watch/watchdog.hpp"
#include "models/initialize.hpp"
#include "tests/actors/delayed_device.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/effort.hpp"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <memory>

using namespace ranvier;

namespace {

constexpr auto timeout = std::chrono::milliseconds(100);

/// Two rows of one stage, watched; the work of rank 1 takes up to `slow` a piece. Throws what the watchdogs say.
std::int64_t run_watched(const char* sharding, runtime::Duration slow, std::uint64_t seed,
                         std::optional<actors::TrainerOptions::Fault> fault = {}) {
  auto options = tests::small_run();
  options.grid = {1, 2};
  options.group_size = 2;
  options.sharding = collectives::parse_sharding(sharding);
  options.fault = fault;
  const auto architecture = models::make_gpt(tests::small_gpt());
  const tests::RandomTokens tokens(8, 37);
  runtime::Simulation simulation(2, {.seed = seed});
  std::vector<std::unique_ptr<tests::DelayedDevice>> devices;
  std::vector<std::unique_ptr<actors::Trainer>> trainers;
  std::vector<std::unique_ptr<actors::Watchdog>> watchdogs;
  std::int64_t steps = 0;
  int running = 2;
  for (int r = 0; r < 2; ++r) {
    auto& loop = simulation.loop(r);
    devices.push_back(std::make_unique<tests::DelayedDevice>(loop, seed + static_cast<std::uint64_t>(r),
                                                             r == 1 ? slow : std::chrono::microseconds(20), 1));
    trainers.push_back(std::make_unique<actors::Trainer>(
        loop, simulation.transport(r), *devices.back(), architecture, tokens, nullptr, options,
        actors::plan_rank(architecture, tokens.sample_bytes(), options, r)));
    auto* trainer = trainers.back().get();
    trainer->load_weights([&](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
      models::initialize(unit, options.seed, begin, begin + out.size(), out.data());
    });
    watchdogs.push_back(std::make_unique<actors::Watchdog>(
        loop, simulation.transport(r), trainer->trace(),
        actors::Watchdog::Options{
            .timeout = timeout,
            .peers = {1 - r},
            .computing = [&loop] { return loop.own_work().any(); },
            .progress = [trainer] { return static_cast<std::uint64_t>(trainer->step()); },
            .describe = [](int rank) { return fmt::format("rank {}", rank); },
            .under_way = [trainer] { return fmt::format("{}", fmt::join(trainer->running(), "; ")); },
            .heartbeat = nullptr}));
    trainer->start({.step =
                        [&steps, r](const actors::StepResult& step) {
                          if (r == 0) steps = step.step;
                        },
                    .evaluation = nullptr,
                    .done =
                        [&] {
                          if (--running > 0) return;  // whoever is done still answers
                          for (int rank = 0; rank < 2; ++rank) simulation.loop(rank).stop();
                        }});
  }
  simulation.run();
  return steps;
}

}  // namespace

TEST_CASE("a rank whose streams are slower than the timeout is at work, whatever they do") {
  for (const char* sharding : {"ddp", "zero1", "zero2", "zero3", "mics", "GNI", "zero++"}) {
    for (int seed = 1; seed <= tests::effort(2, 6, 1); ++seed) {
      CAPTURE(sharding);
      CAPTURE(seed);
      CHECK(run_watched(sharding, std::chrono::seconds(3), static_cast<std::uint64_t>(seed)) == 2);
    }
  }
}

TEST_CASE("a rank without peers that stands still ends, and one that is slow does not") {
  runtime::Simulation simulation(1, {.seed = 1});
  const runtime::Trace trace(0);
  auto& loop = simulation.loop(0);
  std::uint64_t progress = 0;
  bool computing = true;
  const actors::Watchdog watchdog(loop, simulation.transport(0), trace,
                                  {.timeout = timeout,
                                   .peers = {},
                                   .computing = [&] { return computing; },
                                   .progress = [&] { return progress; },
                                   .describe = [](int rank) { return fmt::format("rank {}", rank); },
                                   .heartbeat = nullptr});
  loop.after(10 * timeout, [&] { computing = false; });
  for (int i = 1; i <= 20; ++i) loop.after(10 * timeout + i * timeout / 2, [&] { ++progress; });
  std::string message;
  try {
    simulation.run();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(progress == 20);
  CHECK(loop.now() < 23 * timeout);
  CHECK(message.starts_with("rank 0 stands still: it has nothing to do and waits for nobody, and nothing has moved for"));
}

TEST_CASE("a row that stops taking part is named, with what waits for it") {
  for (const char* sharding : {"ddp", "zero1", "zero2", "zero3", "mics", "zero++"}) {
    CAPTURE(sharding);
    const actors::TrainerOptions::Fault fault{
        .rank = 1, .step = 2, .kind = actors::TrainerOptions::Fault::Kind::hangs};
    std::string message;
    try {
      run_watched(sharding, std::chrono::microseconds(20), 1, fault);
    } catch (const Error& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find("rank 1 is alive and has nothing to do: rank 0 ") != std::string::npos);
    CHECK(message.find(", in ") != std::string::npos);
  }
}
