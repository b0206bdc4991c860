// From a candidate to the training that it means on machines of a profile: its options, by the code that reads flags,
// and its memory, by the code that plans a rank. Any thread, one at a time.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/plan/search_space.hpp"
#include "apps/train/job.hpp"
#include "apps/train/launch.hpp"
#include "apps/train/options/train_options.hpp"
#include "apps/train/plan/fit.hpp"
#include "runtime/machine_profile.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// The plans of a rank of every stage; stages that are alike share one.
struct StagePlans {
  std::vector<actors::RankPlan> distinct;
  std::vector<std::size_t> of_stage;  ///< [stage] in `distinct`

  [[nodiscard]] const actors::RankPlan& stage(std::size_t stage) const { return distinct[of_stage[stage]]; }
};

/// Bytes of a rank by kind of state, on its device and off it.
struct KindBytes {
  std::array<std::size_t, runtime::memory_kinds> device{};
  std::array<std::size_t, runtime::memory_kinds> elsewhere{};
};

/// What machines have for a job; 0: it is not known.
struct MachineCapacity {
  std::size_t device = 0;  ///< of a rank, but for what drivers and libraries take
  std::size_t host = 0;    ///< of a node
  std::size_t disk = 0;    ///< of a node
};

/// Ranks that are there, instead of those of --world.
struct CurrentRanks {
  std::vector<int> nodes;  ///< of every rank
  int threads = 1;         ///< of a rank's device, where that is the CPU and --threads says nothing else
};

struct PlannedCandidate {
  actors::TrainerOptions trainer;
  StagePlans plans;
  MemoryNeeds needs;
  KindBytes kinds;                ///< bytes of the rank with the most on its device
  std::string saved_activations;  ///< saved_activations_text()
  bool fits = true;
  /// Largest share of what there is that is needed: above 1 it does not fit. Then what lacks: "the device of a rank
  /// needs 90.1 GiB of 79.0 GiB".
  double fullness = 0;
  std::string lacks;
  std::string lacking;  ///< "device", "host" or "disk"; empty: nothing
};

class Planner {
 public:
  /// `given`: flags of ranvier-train, --batch-size among them, and --world unless `here` has the ranks. Without
  /// --precision the default of the profile's device holds. `build` makes the job; null: ranvier-train's. Throws
  /// ErrorCode::usage for flags that ranvier-train or the profile refuses. The profile outlives the planner.
  Planner(std::vector<GivenFlag> given, const runtime::MachineProfile& profile,
          std::optional<CurrentRanks> here = {}, const JobBuilder& build = {});

  [[nodiscard]] const Job& job() const noexcept { return job_; }
  [[nodiscard]] const runtime::MachineProfile& profile() const noexcept { return *profile_; }
  [[nodiscard]] const MachineCapacity& capacity() const noexcept { return capacity_; }
  [[nodiscard]] const std::vector<GivenFlag>& given() const noexcept { return given_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] int node_size() const noexcept { return node_size_; }
  /// Elements of a sample that have a loss: tokens, or 1 of an image.
  [[nodiscard]] std::int64_t items_of_sample() const;
  [[nodiscard]] bool is_given(std::string_view flag) const;
  [[nodiscard]] int batch_size() const noexcept { return batch_size_; }
  [[nodiscard]] runtime::DType precision() const noexcept { return job_.architecture.precision.compute; }
  /// Whether a candidate may save all activations: no flag and no device keeps it from that.
  [[nodiscard]] bool may_save_all() const noexcept { return may_save_all_; }
  /// Of every candidate.
  [[nodiscard]] int chunks_per_rank() const noexcept { return chunks_per_rank_; }
  /// Of every candidate, by slice; empty: balanced.
  [[nodiscard]] const std::vector<int>& layers_per_stage() const noexcept { return layers_per_stage_; }
  /// Of every layer of the architecture: layers of one class plan, declare and compute the same.
  [[nodiscard]] const std::vector<int>& layer_classes() const noexcept { return layer_class_; }
  [[nodiscard]] SpaceOptions space() const;

  /// What ranvier-train makes of the given flags and the candidate's. Throws ErrorCode::usage as it would.
  [[nodiscard]] TrainOptions options_of(const Candidate& candidate) const;
  /// As actors read them, with nodes, threads, links and GPUs of the profile.
  [[nodiscard]] actors::TrainerOptions trainer_of(const TrainOptions& options) const;
  /// The plan of every stage, each kind of stage once. Throws ErrorCode::usage as plan_rank() does.
  [[nodiscard]] StagePlans plans_of(const actors::TrainerOptions& trainer) const;
  /// With fewer units gathered ahead where memory is short and nobody asked for a number. Throws as the above.
  [[nodiscard]] PlannedCandidate plan(const Candidate& candidate) const;

  /// All flags for `ranvier-train --config`, in its order, of a candidate that was planned as `trial`. Of ranks that
  /// are there without those that say what these are.
  [[nodiscard]] std::vector<GivenFlag> config_of(const Candidate& candidate, const PlannedCandidate& trial) const;

 private:
  [[nodiscard]] std::vector<GivenFlag> flags_of(const Candidate& candidate) const;
  void classify_layers();
  [[nodiscard]] std::string column_class(const actors::TrainerOptions& trainer) const;
  [[nodiscard]] std::string slice_class(const std::vector<models::LayerRange>& slices, std::size_t slice) const;
  void judge(PlannedCandidate& trial) const;

  std::vector<GivenFlag> given_;  // without what this program sets itself
  std::vector<int> layers_per_stage_;
  std::vector<GivenFlag> device_flags_;  // that a build without GPUs refuses, for the config file
  const runtime::MachineProfile* profile_;
  std::optional<CurrentRanks> here_;
  int world_ = 1, node_size_ = 1, batch_size_ = 1, chunks_per_rank_ = 1;
  bool may_save_all_ = false;
  DeviceOptions device_;
  MachineCapacity capacity_;
  Job job_;
  int layers_ = 1;
  std::vector<int> layer_class_;
  /// What `auto` chooses, by column_class(): candidates by the hundred have the same column, and choosing takes longer
  /// than all else of a plan.
  mutable std::map<std::string, std::optional<actors::KeptAlgorithms>> chosen_;
};

}  // namespace ranvier::apps
