// Where checkpoints live must not change a bit, whatever order passes run in.
#include "actors/activation_tier.hpp"
#include "tests/actors/same_bits.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <array>

using namespace ranvier;
using actors::Policy;
using actors::TierKind;
using tests::check_same_bits;
using tests::run_simulated;
using tests::small_gpt;
using tests::small_run;

namespace {

// Sanitizers watch the same code for a shorter time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int orders = 1;
#else
constexpr int orders = 6;
#endif

constexpr std::array policies{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe};

actors::TrainerOptions long_row() {
  auto options = small_run();
  options.batch_size = 7;  // the last microbatch is shorter
  options.steps = 3;
  options.eval_every = 2;
  options.eval_batches = 1;
  return options;
}

}  // namespace

TEST_CASE("checkpoints in host memory train the same bits under every policy, limit, interval and order of messages") {
  auto gpt = small_gpt(6);
  gpt.dropout = 0.1f;
  auto options = long_row();
  const auto on_device = run_simulated(gpt, options, 1);
  options.tiers.activations = TierKind::host;
  std::uint64_t seed = 0;
  for (const Policy policy : policies) {
    for (const int g_inter : {1, 2, 3}) {
      for (const int limit : {1, 3, 4}) {
        for (const int recompute : {1, 2, 3}) {
          CAPTURE(actors::to_string(policy));
          CAPTURE(g_inter);
          CAPTURE(limit);
          CAPTURE(recompute);
          options.policy = policy;
          options.grid.g_inter = g_inter;
          options.pipeline_limit = limit;
          options.recompute = recompute;
          for (int order = 0; order < orders; ++order) {
            ++seed;
            CAPTURE(seed);
            options.tiers.checkpoint_places = 2 + static_cast<int>(seed % 4);
            const auto device = order % 2 == 0 ? tests::Devices::delayed : tests::Devices::inline_;
            check_same_bits(on_device, run_simulated(gpt, options, seed, {}, 1 << 20, device));
          }
        }
      }
    }
  }
}
