#include "tests/actors/simulated_job.hpp"

#include "models/core/initialize.hpp"
#include "runtime/transport/staged_transport.hpp"
#include "tests/doubles/delayed_device.hpp"
#include "tests/doubles/far_device.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace ranvier::tests {

void load_initial_weights(actors::Rank& rank, std::uint64_t seed) {
  rank.load_weights([seed](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    models::initialize(unit, seed, begin, begin + out.size(), out.data());
  });
}

JobResult run_simulated(const models::Architecture& architecture, const models::SampleSource& tokens,
                        const actors::TrainerOptions& options, std::uint64_t seed,
                        const std::map<int, int>& stop_requests, Devices kind, const Attach& attach,
                        const Prepare& prepare) {
  const int ranks = options.grid.ranks();
  runtime::Simulation simulation(ranks, {.seed = seed});
  JobResult result;
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<runtime::StagedTransport>> staged;
  std::vector<std::unique_ptr<actors::Rank>> trainers;
  std::vector<std::vector<actors::StepResult>> steps(static_cast<std::size_t>(ranks));
  std::vector<std::vector<actors::ReplicaReport>> checks(static_cast<std::size_t>(ranks));
  std::vector<std::vector<std::vector<std::int32_t>>> texts(static_cast<std::size_t>(ranks));
  // By rank and unit, the part whose optimizer states the rank holds: read at the end, then the loop stops.
  std::vector<std::vector<std::vector<float>>> parts(static_cast<std::size_t>(ranks));
  const std::function<void(int, std::size_t)> read_next = [&](int r, std::size_t u) {
    actors::Rank& trainer = *trainers[static_cast<std::size_t>(r)];
    const auto& units = trainer.plan().states->all();
    // Evaluations have no separate master weights.
    const bool has_weights = options.steps > 0 || !trainer.plan().states->separate_master();
    if (u == units.size() || !has_weights) return simulation.loop(r).stop();
    const auto range = units[u].trained() ? units[u].optimizer : units[u].parameters.range;
    const std::size_t elements = units[u].spec->elements();
    auto& values = parts[static_cast<std::size_t>(r)].emplace_back(
        range.begin < elements ? std::min(range.count, elements - range.begin) : 0);
    trainer.read_weights(u, range.begin, values, [&read_next, r, u] { read_next(r, u + 1); });
  };
  for (int r = 0; r < ranks; ++r) {
    if (kind == Devices::delayed) {
      devices.push_back(
          std::make_unique<DelayedDevice>(simulation.loop(r), seed * 1000 + static_cast<std::uint64_t>(r)));
    } else if (kind == Devices::far) {
      devices.push_back(std::make_unique<FarDevice>(runtime::make_inline_device()));
    } else {
      devices.push_back(runtime::make_inline_device());
    }
    devices.back()->on_failure([&simulation, r](std::exception_ptr error) { simulation.loop(r).stop(error); });
    auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), options, r);
    collectives::NcclColumn* const nccl = attach ? attach(simulation, r, plan) : nullptr;
    runtime::Transport* transport = &simulation.transport(r);
    if (kind == Devices::far) {
      staged.push_back(std::make_unique<runtime::StagedTransport>(simulation.loop(r), *transport, *devices.back()));
      for (const auto& messages : plan.staged_messages) staged.back()->reserve(messages);
      transport = staged.back().get();
    }
    trainers.push_back(std::make_unique<actors::Rank>(simulation.loop(r), *transport, *devices.back(),
                                                      actors::Rank::Samples{tokens, &tokens}, std::move(plan)));
    actors::Rank& trainer = *trainers.back();
    load_initial_weights(trainer, options.seed);
    if (prepare) prepare(simulation.loop(r), trainer);
    if (kind == Devices::far) {
      auto& far = dynamic_cast<FarDevice&>(*devices.back());
      far.close(runtime::MemorySpace::pinned);
      far.close(runtime::MemorySpace::device);
    }
    const auto start = [&, r] {
      trainers[static_cast<std::size_t>(r)]->start(
          {.step =
               [&, r](const actors::StepResult& step) {
                 steps[static_cast<std::size_t>(r)].push_back(step);
                 const auto request = stop_requests.find(r);
                 if (request != stop_requests.end() && request->second == step.step)
                   trainers[static_cast<std::size_t>(r)]->trainer().request_stop();
               },
           .evaluation =
               [&, r](const actors::EvaluationResult& evaluation) {
                 if (r != 0) return;
                 if (evaluation.loss) result.evaluations.push_back(*evaluation.loss);
                 if (evaluation.correct) result.correct.push_back(*evaluation.correct);
                 if (evaluation.accuracy) result.accuracies.push_back(*evaluation.accuracy);
               },
           .sample =
               [&, r](std::int64_t, std::span<const std::int32_t> text) {
                 texts[static_cast<std::size_t>(r)].emplace_back(text.begin(), text.end());
               },
           .checked =
               [&, r](const actors::ReplicaReport& report, std::optional<actors::BadStepOptions::Action>) {
                 checks[static_cast<std::size_t>(r)].push_back(report);
               },
           .done = [&, r] { read_next(r, 0); }});
    };
    if (nccl != nullptr) {
      nccl->connect(start);
    } else {
      start();
    }
  }
  simulation.run();
  std::map<std::string, std::vector<bool>> have;
  result.handlers = simulation.handlers_run();
  result.steps = steps[0];
  result.texts = texts[0];
  result.checks = checks[0];
  result.answers = trainers[0]->answers();
  result.rollback = trainers[0]->trainer().rollback();
  for (int r = 0; r < ranks; ++r) {
    const auto& mine = steps[static_cast<std::size_t>(r)];
    expect(texts[static_cast<std::size_t>(r)] == result.texts, "text samples of rank {} differ", r);
    const auto& found = checks[static_cast<std::size_t>(r)];
    expect(std::equal(found.begin(), found.end(), result.checks.begin(), result.checks.end(),
                      [](const auto& a, const auto& b) { return a.step == b.step && a.damage == b.damage; }),
           "replica checks of rank {} differ", r);
    expect(mine.size() == result.steps.size(), "rank {} took {} steps, rank 0 {}", r, mine.size(),
           result.steps.size());
    for (std::size_t s = 0; s < mine.size(); ++s) {
      expect(mine[s].loss == result.steps[s].loss || mine[s].skipped, "the loss of rank {} differs in step {}", r,
             mine[s].step);
      expect(mine[s].skipped == result.steps[s].skipped && mine[s].loss_scale == result.steps[s].loss_scale,
             "rank {} differs in skipping or loss scale in step {}", r, s + 1);
    }
    if (result.rollback) continue;  // the final states of a rollback are unused, and may be damaged
    if (parts[static_cast<std::size_t>(r)].empty()) continue;
    const auto& units = trainers[static_cast<std::size_t>(r)]->plan().states->all();
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto range = units[u].trained() ? units[u].optimizer : units[u].parameters.range;
      const std::size_t elements = units[u].spec->elements();
      const std::vector<float>& weights = parts[static_cast<std::size_t>(r)][u];
      const std::string& name = units[u].spec->name;
      auto& whole = result.weights.try_emplace(name, elements, 0.0f).first->second;
      auto& known = have.try_emplace(name, elements, false).first->second;
      for (std::size_t e = 0; e < weights.size(); ++e) {
        expect(!known[range.begin + e] || whole[range.begin + e] == weights[e],
               "weights of rank {} differ in unit {}", r, name);
        whole[range.begin + e] = weights[e];
        known[range.begin + e] = true;
      }
    }
  }
  return result;
}

JobResult run_simulated(const models::GptOptions& gpt, const actors::TrainerOptions& options, std::uint64_t seed,
                        const std::map<int, int>& stop_requests, std::int64_t samples, Devices kind) {
  return run_simulated(models::make_gpt(gpt), RandomTokens(gpt.sequence_length, gpt.vocab_size, samples), options,
                       seed, stop_requests, kind);
}

}  // namespace ranvier::tests
