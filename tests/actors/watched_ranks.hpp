// The ranks of a job on a simulation, whose messages a test sees as they are sent.
#pragma once

#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/transports.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace ranvier::tests {

struct WatchedRanks {
  using Sent = std::function<void(int rank, int peer, runtime::Tag tag, std::size_t bytes)>;
  using MakeDevice = std::function<std::unique_ptr<runtime::Device>(int rank)>;

  WatchedRanks(
      runtime::Simulation& of, const models::Architecture& architecture, const models::SampleSource& samples,
      const actors::TrainerOptions& options, const Sent& sent,
      const MakeDevice& make_device = [](int) { return runtime::make_inline_device(); })
      : simulation(&of) {
    for (int r = 0; r < options.grid.ranks(); ++r) {
      transports.push_back(std::make_unique<WatchedTransport>(
          of.transport(r), [sent, r](int peer, runtime::Tag tag, std::size_t bytes) {
            if (sent) sent(r, peer, tag, bytes);
          }));
      devices.push_back(make_device(r));
      devices.back()->on_failure([&of, r](std::exception_ptr error) { of.loop(r).stop(error); });
      ranks.push_back(std::make_unique<actors::Rank>(
          of.loop(r), *transports.back(), *devices.back(), actors::Rank::Samples{samples},
          actors::plan_rank(architecture, samples.sample_bytes(), options, r)));
    }
  }

  void load_weights(std::uint64_t seed) {
    for (const auto& rank : ranks) load_initial_weights(*rank, seed);
  }
  /// Trains to the end.
  void run() {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      ranks[r]->start({.step = [](const actors::StepResult&) {},
                       .evaluation = {},
                       .done = [this, r] { simulation->loop(static_cast<int>(r)).stop(); }});
    simulation->run();
  }

  runtime::Simulation* simulation;
  std::vector<std::unique_ptr<WatchedTransport>> transports;
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<actors::Rank>> ranks;
};

}  // namespace ranvier::tests
