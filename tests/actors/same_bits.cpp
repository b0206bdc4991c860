#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

namespace ranvier::tests {

void check_same_bits(const JobResult& a, const JobResult& b) {
  REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    CHECK(a.steps[s].loss == b.steps[s].loss);
    CHECK(a.steps[s].skipped == b.steps[s].skipped);
    CHECK((a.steps[s].gradient_norm == b.steps[s].gradient_norm || a.steps[s].skipped));
  }
  CHECK(a.evaluations == b.evaluations);
  CHECK(a.accuracies == b.accuracies);
  CHECK(a.texts == b.texts);
  CHECK(a.weights == b.weights);
}

std::vector<std::uint64_t> message_orders(int count) {
  if (const char* const only = std::getenv("RANVIER_SEED")) return {static_cast<std::uint64_t>(std::atoll(only))};
  const char* const wanted = std::getenv("RANVIER_SEEDS");
  std::vector<std::uint64_t> seeds(static_cast<std::size_t>(wanted != nullptr ? std::atoi(wanted) : count));
  std::iota(seeds.begin(), seeds.end(), std::uint64_t{0});
  return seeds;
}

void set_precision(actors::TrainerOptions& options, runtime::DType compute) {
  options.precision = {compute, runtime::DType::f32};
  options.loss_scale = {};
  if (compute == runtime::DType::f16) options.loss_scale = {.scale = 1024, .dynamic = true};
}

std::vector<std::pair<std::string, actors::TrainerOptions>> pipeline_orders(const actors::TrainerOptions& options) {
  using actors::Policy, actors::TierKind;
  std::vector<std::pair<std::string, actors::TrainerOptions>> orders;
  for (const Policy policy :
       {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe, Policy::zero_bubble, Policy::zb_h1}) {
    auto order = options;
    order.grid.g_inter = 3;
    order.policy = policy;
    orders.emplace_back(actors::to_string(policy), order);
    order.saved_activations = models::SavedActivations::all;
    orders.emplace_back(std::string(actors::to_string(policy)) + ", all activations saved", order);
  }
  auto waiting = options;
  waiting.grid.g_inter = 3;
  waiting.defer_weights = true;
  waiting.recompute = 1;
  orders.emplace_back("deferred", waiting);
  for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
    auto chunks = options;
    chunks.grid.g_inter = chunks.chunks_per_rank = 2;
    chunks.policy = policy;
    orders.emplace_back("chunks, " + std::string(actors::to_string(policy)), chunks);
  }
  auto& last = orders.back().second;
  last.recompute = 2;
  last.saved_activations = models::SavedActivations::all;
  last.tiers = {.parameters = TierKind::host,
                .optimizer = TierKind::host,
                .activations = TierKind::host,
                .bucket_elements = 256};
  return orders;
}

const JobResult& ReferenceJob::result() {
  if (!result_) result_ = run_simulated(gpt_, options_, 1);
  return *result_;
}

void check_trains_like(ReferenceJob& reference, const models::GptOptions& gpt,
                       const actors::TrainerOptions& options, std::uint64_t seed) {
  CAPTURE(seed);
  const auto devices = seed % 2 == 0 ? Devices::inline_ : Devices::delayed;
  check_same_bits(reference.result(), run_simulated(gpt, options, seed, devices));
}

}  // namespace ranvier::tests
