// Communicator that runs plans. Several may share an executor; each has its own range of Tag::index.
//
// Operations start in the order of the calls, as many at a time as there are staging buffers. This cannot deadlock:
// every rank has started, or can start, the first operation that some rank has not finished.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/communicators/executor.hpp"
#include "collectives/plans/algorithms.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace ranvier::collectives {

class PlanCommunicator final : public Communicator {
 public:
  struct Options {
    Team team;
    int me = 0;              ///< index in team.members
    std::vector<int> ranks;  ///< MPI rank of each member
    PlanChoice choice;
    /// This communicator's range of Tag::index, used cyclically. An operation uses one per chunk.
    std::uint32_t first_index = 0, indices = 1 << 16;
    std::vector<std::byte*> staging;  ///< one buffer per running operation; others wait in order
    std::size_t staging_bytes = 0;    ///< bytes of each buffer
  };

  /// Bytes of one staging buffer for any of `shapes`.
  [[nodiscard]] static std::size_t staging_bytes(const Team& team, int me, const PlanChoice& choice,
                                                 std::span<const OperationShape> shapes);

  /// Loop and executor must outlive it.
  PlanCommunicator(runtime::EventLoop& loop, Executor& executor, Options options);
  /// With unfinished operations, only after the loop's last run.
  ~PlanCommunicator() override;

  [[nodiscard]] const Team& team() const noexcept override;
  [[nodiscard]] int me() const noexcept override;
  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           runtime::Handler done) override;
  [[nodiscard]] std::vector<UnderWay> running() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Arguments for the executor, or for another backend that runs the steps of plans. Schedules are cached by size.
class PlanOperands {
 public:
  /// `options` must outlive it.
  explicit PlanOperands(const PlanCommunicator::Options& options) : options_(&options) {}

  /// Non-empty parts, without `index` and `staging`; none, on all ranks, if there are no elements. `what` starts the
  /// errors: elements not divisible by the ranks, more staging than planned.
  [[nodiscard]] std::optional<Executor::Operands> of(Collective collective,
                                                     std::span<const Communicator::Operand> parts,
                                                     runtime::DType dtype, std::string_view what);

 private:
  using RankSchedules = std::shared_ptr<const std::vector<RankSchedule>>;

  const PlanCommunicator::Options* options_;
  std::map<std::tuple<Collective, std::size_t, int>, RankSchedules> schedules_;  ///< by elements and chunks
};

}  // namespace ranvier::collectives
