// Where parameters live between their uses must not change a bit.
#include "actors/parameter_tier.hpp"
#include "tests/actors/same_bits.hpp"

#include <doctest/doctest.h>

using namespace ranvier;
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
constexpr int orders = 4;
#endif

}  // namespace

TEST_CASE("parameters in host memory train the same bits, whatever is gathered ahead, kept and recomputed") {
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto gpt = small_gpt();
    gpt.precision = {dtype, runtime::DType::f32};
    auto options = small_run();
    options.steps = 3;
    options.eval_every = 2;
    options.eval_batches = 1;
    options.precision = gpt.precision;
    options.grid = {2, 2};
    const auto on_device = run_simulated(gpt, options, 1);
    options.tiers.parameters = TierKind::host;
    std::uint64_t seed = 0;
    for (const int prefetch : {0, 1, 2, 3}) {
      for (const bool reuse : {false, true}) {
        for (const int recompute : {0, 2}) {
          for (const auto optimizer : {TierKind::device, TierKind::host}) {
            CAPTURE(prefetch);
            CAPTURE(reuse);
            CAPTURE(recompute);
            options.prefetch = prefetch;
            options.reuse = reuse;
            options.recompute = recompute;
            options.tiers.optimizer = optimizer;
            options.tiers.bucket_elements = prefetch % 2 == 0 ? 1000 : 1 << 20;
            check_same_bits(on_device, run_simulated(gpt, options, ++seed));
          }
        }
      }
    }
  }
}

TEST_CASE("parameters in host memory combine with every sharding, under any order of messages") {
  std::uint64_t seed = 0;
  for (const auto dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    auto gpt = small_gpt();
    gpt.precision = {dtype, runtime::DType::f32};
    for (const auto& [g_inter, g_data] : {std::pair{1, 4}, {2, 4}, {3, 2}}) {
      for (const char* name : {"ddp", "zero1", "zero2", "zero3", "mics", "paro-igg", "paro-iig", "paro-nig", "zero++",
                               "GIN", "IGN", "NGI", "GNN"}) {
        CAPTURE(std::string(name));
        CAPTURE(g_inter);
        CAPTURE(g_data);
        auto options = small_run();
        options.steps = 3;
        options.precision = gpt.precision;
        options.grid = {g_inter, g_data};
        options.group_size = 2;
        options.sharding = collectives::parse_sharding(name);
        const auto on_device = run_simulated(gpt, options, 1);
        options.tiers = {.parameters = TierKind::host, .bucket_elements = 1024};
        for (int i = 0; i < orders; ++i) {
          options.reuse = i % 4 < 2;
          options.tiers.optimizer = i % 3 == 0 ? TierKind::host : TierKind::device;
          const auto device = i % 2 == 0 ? tests::Devices::delayed : tests::Devices::inline_;
          check_same_bits(on_device, run_simulated(gpt, options, ++seed, {}, 1 << 20, device));
        }
      }
    }
  }
}
