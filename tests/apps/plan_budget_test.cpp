// Device memory that a plan fills with offloaded optimizer states (--optimizer-budget).
#include "apps/plan/ranking.hpp"
#include "apps/plan/rows.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/train_flags.hpp"

#include <optional>

using namespace ranvier;
using namespace ranvier::tests;
using apps::Candidate;
using apps::GivenFlag;
using apps::Planner;
using runtime::MachineProfile;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t unit_bytes = 5 * MiB;  // at least a layer's optimizer states on one of two rows

std::vector<GivenFlag> job(const Flags& more) {
  return given_flags(
      join("--layers 12 --hidden 256 --heads 4 --vocab-size 256 --sequence-length 32 --batch-size 8 --world 4 "
           "--node-size 4 --precision bf16",
           more));
}

Candidate offloading(const std::string& offload) {
  return {.g_inter = 2, .g_data = 2, .shard = "zero1", .offload = offload, .recompute = "off", .policy = "1f1b"};
}

/// A GPU on which the candidate leaves this memory.
MachineProfile gpu_with(const Candidate& candidate, std::size_t left) {
  MachineProfile profile = plan_profile(true);
  profile.device_memory =
      runtime::cuda_reserve_bytes + Planner(job({}), profile).plan(candidate).needs.device + left;
  return profile;
}

/// Number of units with optimizer states on the device, and of all, over the stages.
std::pair<std::size_t, std::size_t> kept_units(const apps::PlannedCandidate& trial) {
  std::size_t kept = 0, all = 0;
  for (const actors::RankPlan& plan : trial.plans.distinct) {
    kept += plan.states->optimizers_on_device();
    all += plan.states->all().size();
  }
  return {kept, all};
}

}  // namespace

TEST_CASE("a plan's budget fills the device with optimizer states of complete units, and never exceeds it") {
  const Candidate candidate = offloading("zero-offload");
  std::size_t least_kept = 0;
  for (const std::size_t left :
       {std::size_t{0}, std::size_t{1}, std::size_t{6}, std::size_t{11}, std::size_t{500}}) {
    CAPTURE(left);
    const MachineProfile profile = gpu_with(candidate, left * MiB);
    const std::size_t device_bytes = profile.device_memory - runtime::cuda_reserve_bytes;
    const Planner planner(job({}), profile);
    const apps::PlannedCandidate trial = planner.plan(candidate);
    const auto filled = planner.with_budget(candidate, trial);
    CHECK(filled.has_value() == (left > 0));
    if (!filled) continue;
    const auto& [with_budget, planned] = *filled;
    CHECK(planned.fits());
    CHECK(planned.needs.device <= device_bytes);
    CHECK(planned.saved_activations == trial.saved_activations);
    const std::size_t budget = planned.trainer.tiers.optimizer_budget;
    CHECK(with_budget.optimizer_budget == fmt::format("{}MiB", budget / MiB));
    CHECK(budget <= left * MiB);
    CHECK(budget <= 6 * unit_bytes + 2 * MiB);  // a stage has six layers and small units
    const auto [kept, all] = kept_units(planned);
    CHECK(kept > least_kept);
    CHECK((kept == all) == (left == 500));
    if (kept < all) CHECK(planned.needs.device + unit_bytes + MiB > device_bytes);
    least_kept = kept;
    // A run with these flags plans the same.
    const apps::PlannedCandidate again = planner.plan(with_budget);
    CHECK(again.trainer.tiers.optimizer_budget == budget);
    CHECK(again.needs.device == planned.needs.device);
    CHECK(again.needs.host == planned.needs.host);
  }
}

TEST_CASE("a plan has no budget for states on the device, for a given budget, or if no states remained offloaded") {
  const auto filled = [](const Candidate& candidate, std::size_t left, const Flags& more) {
    const MachineProfile profile = gpu_with(candidate, left * MiB);
    const Planner planner(job(more), profile);
    return planner.with_budget(candidate, planner.plan(candidate));
  };
  CHECK(filled(offloading("myelin"), 8, {}));
  CHECK_FALSE(filled(offloading("myelin"), 500, {}));  // as --offload none
  CHECK(filled(offloading(""), 500, "--offload myelin"));
  CHECK_FALSE(filled(offloading("none"), 8, {}));
  CHECK_FALSE(filled(offloading("myelin"), 8, "--optimizer-budget 0"));
  MachineProfile unknown = plan_profile(true);
  unknown.device_memory = 0;
  const Planner planner(job({}), unknown);
  CHECK_FALSE(planner.with_budget(offloading("myelin"), planner.plan(offloading("myelin"))));
}

TEST_CASE("the best plans that offload optimizer states get a budget if it makes them faster") {
  const MachineProfile profile = gpu_with(offloading("zero-offload"), 11 * MiB);
  const Planner planner(job("--g-inter 2 --shard zero1 --recompute off --policy 1f1b --microbatch-size 1 "
                            "--all-gather ring --reduce-scatter ring --all-reduce ring --offload zero-offload"),
                        profile);
  for (const double gain : {-0.1, 0.5 * apps::row_tolerance, 0.1}) {
    CAPTURE(gain);
    const auto predict = [&](const models::Architecture&, const models::SampleSource&,
                             const actors::TrainerOptions& options, const MachineProfile&,
                             const actors::PredictionOptions&) {
      actors::Prediction prediction;
      prediction.step_seconds = options.tiers.optimizer_budget > 0 ? 1 - gain : 1;
      return prediction;
    };
    const apps::Ranking ranking = rank_candidates(planner, predict, {.best = 3});
    REQUIRE(ranking.best.size() == 1);
    CHECK(ranking.search.simulated == 2);
    const apps::Ranked& best = ranking.best.front();
    const bool is_faster = gain > apps::row_tolerance;
    CHECK(best.prediction.step_seconds == (is_faster ? 1 - gain : 1));
    const std::string* const budget = value_of(best.config, "optimizer-budget");
    CHECK((budget != nullptr) == is_faster);
    if (budget == nullptr) continue;
    CHECK(best.candidate.text().find("budget " + *budget) != std::string::npos);
    Flags words;
    for (const GivenFlag& flag : best.config)
      if (flag.name != "device") words.push_back("--" + flag.name + "=" + flag.value);
    CHECK(parse_train(words, 4).trainer.tiers.optimizer_budget == best.trial.trainer.tiers.optimizer_budget);
  }
  const apps::Ranking estimated = rank_candidates(planner, {}, {.best = 3, .estimate = true});
  REQUIRE(estimated.best.size() == 1);
  CHECK(estimated.search.simulated == 0);
  CHECK(value_of(estimated.best.front().config, "optimizer-budget") != nullptr);
}
