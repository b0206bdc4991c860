// Plans a candidate on the machines of a profile: options resolved as in ranvier-train, memory by its rank planner.
// Callable from any thread, one at a time.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/job/job.hpp"
#include "apps/memory/fit.hpp"
#include "apps/options/train_options.hpp"
#include "apps/plan/search_space.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

/// Plan of one rank per stage; identical stages share one.
struct StagePlans {
  std::vector<actors::RankPlan> distinct;
  std::vector<std::size_t> of_stage;  ///< index into `distinct`, by stage

  [[nodiscard]] const actors::RankPlan& stage(std::size_t stage) const { return distinct[of_stage[stage]]; }
};

/// Bytes of a rank by memory kind, on its device and off it.
struct KindBytes {
  std::array<std::size_t, runtime::memory_kinds> device{};
  std::array<std::size_t, runtime::memory_kinds> elsewhere{};
};

/// Ranks of the current job, in place of --world.
struct CurrentRanks {
  std::vector<int> nodes;  ///< node of every rank
  int threads = 1;         ///< threads per CPU rank without --threads
};

struct PlannedCandidate {
  actors::TrainerOptions trainer;
  StagePlans plans = {};
  MemoryNeeds needs = {};
  KindBytes kinds = {};                ///< bytes of the rank with the most device memory
  std::string saved_activations = {};  ///< saved_activations_text()
  double fullness = 0;                 ///< largest ratio of needed and available bytes; above 1: does not fit
  /// "a rank's device memory is too small: 90.1 GiB needed, 79.0 GiB available"; empty: fits
  std::string lacks = {};
  std::string lacking = {};  ///< "device", "host" or "disk"; empty: fits

  [[nodiscard]] bool fits() const { return lacking.empty(); }
};

/// PlannedCandidate::fullness above which smaller microbatches and the like do not help; the estimate of the smallest
/// memory is not exact.
inline constexpr double hopeless_fullness = 1.1;

class Planner {
 public:
  /// `given`: flags of ranvier-train, with --batch-size, and with --world unless `here` has the ranks. --precision
  /// has the default of the profile's device. `build` makes the job; null: ranvier-train's. Throws ErrorCode::usage for
  /// flags that ranvier-train refuses or the profile contradicts. The profile outlives the planner.
  Planner(std::vector<GivenFlag> given, const runtime::MachineProfile& profile,
          std::optional<CurrentRanks> here = {}, const JobBuilder& build = {});
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  [[nodiscard]] const Job& job() const noexcept { return job_; }
  [[nodiscard]] const runtime::MachineProfile& profile() const noexcept { return *profile_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] int node_size() const noexcept { return node_size_; }
  [[nodiscard]] bool is_given(std::string_view flag) const;
  [[nodiscard]] int batch_size() const noexcept { return batch_size_; }
  [[nodiscard]] runtime::DType precision() const noexcept { return job_.architecture.precision.compute; }
  /// True if neither flags nor device keep candidates from saving all activations.
  [[nodiscard]] bool may_save_all() const noexcept { return may_save_all_; }
  /// Model chunks per rank of every candidate.
  [[nodiscard]] int chunks_per_rank() const noexcept { return asked_.options.trainer.chunks_per_rank; }
  /// Layers per slice of every candidate; empty: balanced by cost.
  [[nodiscard]] const std::vector<int>& layers_per_stage() const noexcept {
    return asked_.options.trainer.layers_per_stage;
  }
  /// Class of every layer; layers of one class plan, declare and compute the same.
  [[nodiscard]] const std::vector<int>& layer_classes() const noexcept { return layer_class_; }
  [[nodiscard]] SpaceOptions space() const;

  /// Options of ranvier-train with the given flags and the candidate's. Throws ErrorCode::usage like resolve().
  [[nodiscard]] TrainOptions options_of(const Candidate& candidate) const;
  /// Trainer options with nodes, threads, links and GPUs of the profile.
  [[nodiscard]] actors::TrainerOptions trainer_of(const TrainOptions& options) const;
  /// Plans every kind of stage once. Throws ErrorCode::usage like plan_rank().
  [[nodiscard]] StagePlans plans_of(const actors::TrainerOptions& trainer) const;
  /// Plans a candidate. Without --prefetch, reduces the prefetched units until it fits. Throws like options_of() and
  /// plans_of().
  [[nodiscard]] PlannedCandidate plan(const Candidate& candidate) const;
  /// The candidate of `trial` with an --optimizer-budget in MiB that fills the device memory left on the fullest rank,
  /// and its plan. None if --optimizer-budget is given, no optimizer states are offloaded, no unit's states fit, or
  /// --offload none would have the same states on the device.
  [[nodiscard]] std::optional<std::pair<Candidate, PlannedCandidate>> with_budget(
      Candidate candidate, const PlannedCandidate& trial) const;

  /// Candidate that needs the least memory among those that differ only in microbatches, recomputation, schedule and
  /// algorithms. If its fullness is above hopeless_fullness, none of them fits.
  [[nodiscard]] Candidate smallest_like(Candidate candidate) const;

  /// Flags of a candidate planned as `trial` for `ranvier-train --config`, in help order. For the current job's ranks,
  /// without flags that describe the machines.
  [[nodiscard]] std::vector<GivenFlag> config_of(const Candidate& candidate, const PlannedCandidate& trial) const;

 private:
  /// Flags of the candidate without given ones, except grid and microbatch size.
  [[nodiscard]] std::vector<GivenFlag> flags_of(const Candidate& candidate) const;
  void classify_layers();
  [[nodiscard]] std::string column_class(const actors::TrainerOptions& trainer) const;
  [[nodiscard]] std::string slice_class(const std::vector<models::LayerRange>& slices, std::size_t slice) const;
  [[nodiscard]] PlannedCandidate judged(actors::TrainerOptions trainer) const;

  std::vector<GivenFlag> given_;  // without the flags that this program sets
  AskedOptions asked_;            // options of the flags as read, before --g-inter is derived
  mutable AskedOptions trial_;    // options of the candidate that is planned
  TrainTable table_ = declare_train(trial_);
  std::vector<GivenFlag> device_flags_;  // for the config file; a build without GPUs refuses them
  const runtime::MachineProfile* profile_;
  std::optional<CurrentRanks> here_;
  int world_ = 1, node_size_ = 1, batch_size_ = 1;
  bool may_save_all_ = false;
  DeviceOptions device_;
  std::size_t device_bytes_ = 0;  // per rank, without the reserve for drivers and libraries; 0: unknown
  Job job_;
  int layers_ = 1;
  std::vector<int> layer_class_;
  /// Choices of `auto`, cached by column_class(): hundreds of candidates share a column, and choosing dominates
  /// planning.
  mutable std::map<std::string, std::optional<actors::KeptAlgorithms>> chosen_;
};

}  // namespace ranvier::apps
