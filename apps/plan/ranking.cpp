#include "apps/plan/ranking.hpp"

#include "apps/memory/job_plan.hpp"
#include "apps/options/flag_groups.hpp"
#include "apps/plan/rows.hpp"
#include "apps/program/flag_names.hpp"
#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <utility>

namespace ranvier::apps {

namespace {

/// Data with the sizes of the run's samples, and zeros as values.
class PlannedSamples final : public models::SampleSource {
 public:
  explicit PlannedSamples(const Job& job)
      : bytes_(job.sample),
        losses_(job.architecture.targets > 0 ? job.architecture.targets : job.architecture.positions) {}

  [[nodiscard]] std::int64_t samples() const override { return std::int64_t{1} << 40; }
  [[nodiscard]] std::size_t input_bytes() const override { return bytes_.input; }
  [[nodiscard]] std::size_t target_bytes() const override { return bytes_.target; }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return losses_; }
  [[nodiscard]] std::size_t document_positions() const override {
    return bytes_.documents / (document_arrays * sizeof(std::int32_t));
  }
  void read_input(std::int64_t, std::byte* to) const override { std::memset(to, 0, bytes_.input); }
  void read_target(std::int64_t, std::byte* to) const override { std::memset(to, 0, bytes_.target); }

 private:
  models::SampleBytes bytes_;
  std::int64_t losses_;  // per sample: its tokens, or 1 for an image
};

/// Key of a trial's behaviour: trials with equal keys run identically.
std::string signature(const PlannedCandidate& trial) {
  const actors::TrainerOptions& t = trial.trainer;
  std::string text = fmt::format("{} {} {} {} {} {} {}", t.grid.g_inter, t.grid.g_data, to_string(t.sharding),
                                 t.group_size, t.microbatch_size, t.prefetch, t.pipeline_limit);
  for (const auto tier : {t.tiers.parameters, t.tiers.secondary_of(false), t.tiers.secondary_of(true),
                          t.tiers.gradients, t.tiers.optimizer, t.tiers.activations})
    text += fmt::format(" {}", offload::to_string(tier));
  const bool nccl = t.gpu && t.gpu->nccl;
  for (const actors::RankPlan& plan : trial.plans.distinct) {
    text += fmt::format("; {} {} {} {}", fmt::join(plan.slots, "+"), plan.recompute, saves_all_activations(plan),
                        static_cast<int>(plan.policy));
    std::set<std::string> names;
    for (const collectives::ShardFlow* flow : {&plan.flow, &plan.frozen_flow}) {
      for (const auto* hops : {&flow->gather_forward, &flow->gather_backward, &flow->reduce_microbatch,
                               &flow->reduce_batch, &flow->gather_gradient, &flow->refresh}) {
        for (const collectives::Hop& hop : *hops) {
          const auto& choice = plan.column->choices[static_cast<std::size_t>(hop.team)];
          const auto* const field = std::ranges::find_if(
              algorithm_fields, [&](const auto& each) { return each.first == hop.collective; });
          const std::string& asked = t.algorithms.*field->second;
          names.insert(fmt::format("{} {} {}", to_string(hop.team), to_string(hop.collective),
                                   nccl && asked == "auto" ? "nccl" : choice.algorithm_of(hop.collective).name));
        }
      }
    }
    text += fmt::format(" {}", fmt::join(names, ","));
  }
  return text;
}

/// Start of an error message, without this candidate's numbers and the remedy.
std::string reason_of(const Error& error) {
  std::string text = message_of(error);
  return "refused: " + text.substr(0, std::min(text.find(": "), text.find("; ")));
}

/// Prediction without simulation: planned memory and estimated step time.
actors::Prediction estimated(const Planner& planner, const PlannedCandidate& trial, const Bound& bound) {
  actors::Prediction prediction{.step_seconds = bound.estimate};
  for (const std::size_t distinct : trial.plans.of_stage) {
    using runtime::MemorySpace;
    const runtime::MemoryPlan& memory = trial.plans.distinct[distinct].memory;
    const std::size_t device = memory.bytes(MemorySpace::device);
    prediction.device_bytes = std::max(prediction.device_bytes, device);
    prediction.host_bytes =
        std::max(prediction.host_bytes, memory.bytes(MemorySpace::pinned) + memory.bytes(MemorySpace::host));
    prediction.file_bytes = std::max(prediction.file_bytes, memory.bytes(MemorySpace::nvme));
    prediction.device_bytes_of_all += static_cast<double>(device) * trial.trainer.grid.g_data;
  }
  if (bound.estimate > 0) {
    const models::Architecture& architecture = planner.job().architecture;
    const double samples = planner.batch_size() / bound.estimate;
    prediction.tokens_per_second = samples * architecture.positions;
    prediction.model_flops_per_second = samples * architecture.flops_per_sample() / planner.world();
    if (const double peak = actors::peak_flops(planner.profile(), trial.trainer.precision.compute); peak > 0)
      prediction.mfu = prediction.model_flops_per_second / peak;
  }
  return prediction;
}

class Ranker {
 public:
  Ranker(const Planner& planner, const Predictor& predict, const actors::PredictionOptions& how)
      : planner_(&planner), predict_(&predict), filter_(planner), bounds_(planner, how.disturbances), how_(how) {}

  Ranking run(const SearchLimits& limits) {
    SearchSpace space = make_space(planner_->space());
    candidates_ = std::move(space.candidates);
    filter_.left_out = std::move(space.left_out);
    ranking_.candidates = candidates_.size();
    const SearchSteps steps{.bound = [this](std::size_t i) { return bounds_.of(candidates_[i]); },
                            .plan = [this](std::size_t i) { return plan(i); },
                            .simulate = [this](std::size_t i) { return simulate(i); }};
    estimates_ = limits.estimate;
    SearchLimits of_rows = limits;
    of_rows.limit = [&](std::span<const SearchResult::Found> found) {
      return rows_limit(candidates_, found, limits.best);
    };
    ranking_.search = search(candidates_.size(), steps, of_rows);
    if (estimates_) ranking_.search.simulated = 0;
    for (const PlanRow& row : rows_of(candidates_, ranking_.search.best, limits.best)) {
      Ranked ranked = take(row.members.front());
      for (const std::size_t other : std::span(row.members).subspan(1)) ranked.alternatives.push_back(take(other));
      ranking_.best.push_back(std::move(ranked));
    }
    fill_devices(limits.threads);
    std::ranges::stable_sort(ranking_.best, [](const Ranked& a, const Ranked& b) {
      return a.prediction.step_seconds < b.prediction.step_seconds;
    });
    ranking_.left_out = std::move(filter_.left_out);
    ranking_.closest = std::move(filter_.closest);
    return std::move(ranking_);
  }

 private:
  /// `found`: index into the best of the search.
  Ranked take(std::size_t found) {
    Ranked& ranked = planned_.at(ranking_.search.best[found].candidate);
    ranked.config = planner_->config_of(ranked.candidate, ranked.trial);
    return std::move(ranked);
  }

  std::optional<Bound> plan(std::size_t i) {
    const Candidate& candidate = candidates_[i];
    std::optional<PlannedCandidate> trial = filter_.plan(candidate);
    if (!trial) return {};
    if (!known_.insert(signature(*trial)).second) {
      filter_.leave_out("runs: identical to another candidate's");
      return {};
    }
    return add(i, candidate, std::move(*trial));
  }

  Bound add(std::size_t i, const Candidate& candidate, PlannedCandidate trial) {
    const Bound bound = bounds_.of(trial);
    actors::Prediction prediction;
    if (estimates_) prediction = estimated(*planner_, trial, bound);
    trial.plans = {};
    planned_.emplace(i, Ranked{candidate, std::move(trial), bound, std::move(prediction), {}});
    return bound;
  }

  /// Replaces each of the best by its candidate with an --optimizer-budget if this is faster by more than the
  /// differences within a row.
  void fill_devices(int threads) {
    const std::size_t rows = ranking_.best.size(), first = candidates_.size();
    const auto plan = [&](std::size_t row) -> std::optional<Bound> {
      auto filled = planner_->with_budget(ranking_.best[row].candidate, ranking_.best[row].trial);
      if (!filled) return {};
      return add(first + row, filled->first, std::move(filled->second));
    };
    const SearchResult filled = search(rows,
                                       {.bound = [](std::size_t) { return Bound{}; },
                                        .plan = plan,
                                        .simulate = [&](std::size_t row) { return simulate(first + row); }},
                                       {.best = rows, .threads = threads, .exhaustive = true});
    ranking_.search.planned += filled.simulated;
    if (!estimates_) ranking_.search.simulated += filled.simulated;
    for (const auto& [row, seconds] : filled.best) {
      Ranked& ranked = ranking_.best[row];
      if (ranked.prediction.step_seconds <= (1 + row_tolerance) * seconds) continue;
      ranked = std::move(planned_.at(first + row));
      ranked.config = planner_->config_of(ranked.candidate, ranked.trial);
    }
  }

  /// Any thread; no planning runs at the same time.
  std::optional<double> simulate(std::size_t i) {
    Ranked& ranked = planned_.at(i);
    if (estimates_) return ranked.prediction.step_seconds;
    try {
      ranked.prediction = predict_on(*planner_, *predict_, ranked, planner_->profile(), how_);
      return ranked.prediction.step_seconds;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage && error.code() != ErrorCode::memory) throw;
      const std::lock_guard lock(mutex_);
      filter_.leave_out(error.code() == ErrorCode::memory ? "memory: not enough in the simulation"
                                                          : reason_of(error));
      return {};
    }
  }

  const Planner* planner_;
  const Predictor* predict_;
  CandidateFilter filter_;
  Bounds bounds_;
  actors::PredictionOptions how_;
  std::vector<Candidate> candidates_;
  std::map<std::size_t, Ranked> planned_;
  std::set<std::string> known_;
  bool estimates_ = false;
  std::mutex mutex_;  // guards the filter, to which simulations write
  Ranking ranking_;
};

}  // namespace

std::optional<PlannedCandidate> CandidateFilter::plan(const Candidate& candidate) {
  const auto [family, is_new] = families_.try_emplace(
      {candidate.g_inter, candidate.shard, candidate.group_size, candidate.offload, candidate.secondary_tier});
  auto& [least, least_trial] = family->second;
  if (is_new) {
    least = planner_->smallest_like(candidate);
    try {
      least_trial = planner_->plan(least);
      least_trial->plans = {};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;  // each candidate records its own reason
    }
  }
  if (least_trial && least_trial->fullness > hopeless_fullness) {
    exceeds(least, *least_trial);
    return {};
  }
  try {
    PlannedCandidate trial = planner_->plan(candidate);
    if (trial.fits()) return trial;
    exceeds(candidate, trial);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage) throw;
    leave_out(reason_of(error));
  }
  return {};
}

void CandidateFilter::exceeds(const Candidate& candidate, const PlannedCandidate& trial) {
  leave_out(fmt::format("memory: not enough on the {}", trial.lacking == "host" ? "node" : trial.lacking));
  if (closest && closest->fullness <= trial.fullness) return;
  closest = Closest{candidate, trial.fullness, trial.lacks};
}

Ranking rank_candidates(const Planner& planner, const Predictor& predict, const SearchLimits& limits,
                        const actors::PredictionOptions& how) {
  return Ranker(planner, predict, how).run(limits);
}

std::optional<Ranked> predict_one(const Planner& planner, const Predictor& predict, const Candidate& candidate,
                                  const actors::PredictionOptions& how) {
  try {
    Ranked ranked{.candidate = candidate, .trial = planner.plan(candidate)};
    if (!ranked.trial.fits()) return {};
    ranked.trial.plans = {};
    ranked.prediction = predict_on(planner, predict, ranked, planner.profile(), how);
    ranked.config = planner.config_of(candidate, ranked.trial);
    return ranked;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage && error.code() != ErrorCode::memory) throw;
    return {};
  }
}

actors::Prediction predict_on(const Planner& planner, const Predictor& predict, const Ranked& ranked,
                              const runtime::MachineProfile& machine, const actors::PredictionOptions& how) {
  return predict(planner.job().architecture, PlannedSamples(planner.job()), ranked.trial.trainer, machine, how);
}

actors::PredictionOptions usual_prediction(int world) {
  constexpr int many = 256;
  return {.distinct_only = world >= many};
}

}  // namespace ranvier::apps
