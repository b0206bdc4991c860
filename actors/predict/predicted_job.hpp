// Simulates a complete job in virtual time: all ranks with their actors on phantom devices, on the machines of a
// profile. predict() runs it with the profile's costs. One thread.
#pragma once

#include "actors/base/consensus.hpp"
#include "actors/predict/prediction.hpp"
#include "actors/rank/rank.hpp"
#include "collectives/nccl/phantom_nccl.hpp"
#include "runtime/simulation/simulation.hpp"
#include "runtime/transport/staged_transport.hpp"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

/// Number of distinct rows R. Row i is equivalent to rows i + R, i + 2R, and so on. Ranks of equivalent rows, on
/// different nodes, do the same at the same time, so a prediction simulates one of them. With NCCL, whose link traffic
/// follows from formulas, rows meet only in the agreement after a batch, and there all equivalents take part. R is the
/// smallest valid number of rows; if there is none, all rows are distinct. Valid: R rows occupy separate nodes in every
/// stage, and consist of complete groups or divide one. `nodes`: node by rank.
[[nodiscard]] int distinct_rows(const TrainerOptions& options, std::span<const int> nodes);

class PredictedJob {
 public:
  /// Plans all ranks; allocates address space only. `device`: cost models of the devices; its other fields follow from
  /// profile and disturbances. Throws like predict(). All arguments and the cost models must outlive this object.
  PredictedJob(const models::Architecture& architecture, const models::SampleSource& samples,
               const TrainerOptions& options, const runtime::MachineProfile& profile,
               const runtime::PhantomDeviceOptions& device, const PredictionOptions& how);
  ~PredictedJob();

  /// Sets a callback for every step, on rank 0; call it before run().
  void when_stepped(std::function<void(const StepResult&)> step) { stepped_ = std::move(step); }
  [[nodiscard]] Prediction run();

  /// The rank, or its simulated equivalent.
  [[nodiscard]] Rank& rank(int rank) { return *ranks_.at(static_cast<std::size_t>(simulated(rank))).rank; }
  [[nodiscard]] runtime::Simulation& cluster() noexcept { return cluster_; }

 private:
  class EquivalentConsensus;
  /// Totals of a rank at the end of a step.
  struct Moment {
    runtime::Duration time{};
    std::array<double, runtime::span_kinds> seconds{};
    runtime::Duration busy{};
    runtime::VirtualNetwork::SentVolume sent;
    runtime::HostLinkBytes link;
    offload::FileBytes files;
  };
  struct Ranks {
    std::unique_ptr<runtime::PhantomDevice> device;
    std::vector<std::unique_ptr<runtime::StagedTransport>>
        staged;  // transports of the rank and its equivalents, if messages are staged
    std::unique_ptr<collectives::CommunicatorFactory> source;
    std::unique_ptr<Rank> rank;
    const EquivalentConsensus* consensus = nullptr;  // set if the rank has equivalents
    Moment before, after;                            // before and after the reported step
  };

  [[nodiscard]] int rows_to_simulate() const;
  [[nodiscard]] bool has_equivalents() const noexcept { return rows_ < options_.grid.g_data; }
  /// Simulated equivalent of a rank, possibly itself.
  [[nodiscard]] int simulated(int rank) const;
  [[nodiscard]] bool is_simulated(int rank) const { return simulated(rank) == rank; }
  /// The other ranks that a simulated rank represents.
  [[nodiscard]] std::vector<int> others(int rank) const;
  void plan_memory(const models::SampleSource& samples);
  [[nodiscard]] RankPlan plan_as_before(int rank, const models::SampleBytes& sample);
  void make_rank(int rank, const models::SampleSource& samples);
  [[nodiscard]] std::unique_ptr<Consensus> make_consensus(int rank, runtime::Transport& transport);
  [[nodiscard]] Moment moment(int rank);
  /// Traffic of an agreement, sent by `rank`.
  [[nodiscard]] RankTraffic agreement(int rank);
  /// Traffic of a rank in the reported step.
  [[nodiscard]] RankTraffic traffic_of(int rank);
  [[nodiscard]] StagePrediction times_of(const Ranks& rank) const;

  const models::Architecture* architecture_;
  TrainerOptions options_;
  const runtime::MachineProfile* profile_;
  PredictionOptions how_;
  Prediction prediction_;
  runtime::Simulation cluster_;
  runtime::Grid grid_;
  int rows_ = 1;            // number of simulated rows
  bool rows_send_ = false;  // rows send messages: pulled parameters, or matrices of Muon
  runtime::PhantomDeviceOptions device_;
  std::unique_ptr<collectives::PhantomNccl> nccl_;
  std::vector<std::optional<TrainerOptions>> chosen_;  // by stage: options with the choices of its first rank
  std::vector<Ranks> ranks_;
  std::function<void(const StepResult&)> stepped_;
};

}  // namespace ranvier::actors
