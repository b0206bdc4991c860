// The simulation computes inline. Here one rank trains on the asynchronous CPU device under a real loop, so that
// streams, pool and loop run concurrently, and a sanitizer can check them.
#include "runtime/loop/asio_loop.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/test.hpp"

using namespace ranvier;

TEST_CASE("the asynchronous device gives the bits of the inline one, with any threads, and no later allocation") {
  auto gpt = tests::small_gpt(2);
  gpt.dropout = 0.1f;
  auto options = tests::small_run();
  options.steps = 2;
  options.batch_size = 4;
  options.eval_every = 2;
  options.eval_samples = options.batch_size;
  options.recompute = 2;
  const auto reference = tests::run_simulated(gpt, options, 1);
  const tests::TemporaryFolder folder;
  using actors::TierKind;
  const auto stepped_on_host = [](TierKind kind) {
    return actors::TierOptions{.gradients = kind, .optimizer = kind, .step = actors::StepLocation::host};
  };
  constexpr std::size_t some_units = 10'000;  // bytes
  const auto partly = [](actors::StepLocation step) {
    return actors::TierOptions{
        .gradients = TierKind::host, .optimizer = TierKind::host, .optimizer_budget = some_units, .step = step};
  };
  const auto flipped = [](TierKind gradients, actors::StepLocation step, std::size_t budget = 0) {
    return actors::TierOptions{.parameters = TierKind::host,
                               .gradients = gradients,
                               .optimizer = TierKind::nvme,
                               .optimizer_budget = budget,
                               .step = step,
                               .commit = actors::Commit::flip};
  };
  for (const auto& [threads, tiers] : {std::pair{1, actors::TierOptions{}},
                                       {3, {}},
                                       {1, {.parameters = TierKind::host}},
                                       {1, {.parameters = TierKind::nvme}},
                                       {1, stepped_on_host(TierKind::host)},
                                       {2, stepped_on_host(TierKind::nvme)},
                                       {1, partly(actors::StepLocation::device)},
                                       {2, partly(actors::StepLocation::host)},
                                       {2, flipped(TierKind::nvme, actors::StepLocation::host, some_units)},
                                       {1, flipped(TierKind::device, actors::StepLocation::device)},
                                       {2, flipped(TierKind::nvme, actors::StepLocation::host)}}) {
    INFO("threads ", threads, ", parameters ", to_string(tiers.parameters), ", gradients ",
         to_string(tiers.gradients));
    options.threads = threads;
    options.tiers = tiers;
    options.gpu = {{.scratch_bytes = 0, .staged = false}};  // the host cannot access device memory
    options.tiers.files.directories = {folder.path()};
    const auto architecture = models::make_gpt(gpt);
    const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
    runtime::AsioLoop loop;
    tests::LoneTransport transport;
    tests::FarDevice device(runtime::make_cpu_device({.threads = threads}));
    device.on_failure([&](std::exception_ptr error) { loop.stop(error); });
    actors::Rank trainer(loop, transport, device, actors::Rank::Samples{tokens, &tokens},
                         actors::plan_rank(architecture, tokens.sample_bytes(), options, 0));
    tests::load_initial_weights(trainer, options.seed);
    device.close(runtime::MemorySpace::pinned);
    device.close(runtime::MemorySpace::device);
    std::vector<double> losses;
    trainer.start({.step = [&](const actors::StepResult& step) { losses.push_back(step.loss); },
                   .evaluation = [&](const actors::EvaluationResult& result) { losses.push_back(*result.loss); },
                   .done = [&] { loop.stop(); }});
    loop.run();
    std::vector<double> expected;
    for (std::size_t s = 0; s < reference.steps.size(); ++s) {
      expected.push_back(reference.steps[s].loss);
      if (s % 2 == 1) expected.push_back(reference.evaluations[s / 2]);
    }
    CHECK(losses == expected);
  }
}
