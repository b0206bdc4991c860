// A communicator that runs plans. Several of them may share an executor; each has a part of Tag::index of its own.
//
// Operations start in the order of the calls, as many at a time as there are places of staging. That cannot
// deadlock: of the operations that some rank has not finished, every rank has started the first, or can.
#pragma once

#include "collectives/communicator.hpp"
#include "collectives/executor.hpp"
#include "collectives/plan_choice.hpp"

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
    /// This communicator's part of Tag::index, used in turn. An operation uses one per chunk.
    std::uint32_t first_index = 0, indices = 1 << 16;
    std::vector<std::byte*> staging;  ///< as many operations run at a time; others wait in order
    std::size_t staging_bytes = 0;    ///< of each of them
  };

  /// Bytes of one place of staging that fits any of `shapes`.
  [[nodiscard]] static std::size_t staging_bytes(const Team& team, int me, const PlanChoice& choice,
                                                 std::span<const OperationShape> shapes);

  /// Loop and executor outlive it.
  PlanCommunicator(runtime::EventLoop& loop, Executor& executor, Options options);
  /// With operations unfinished, only after the loop's last run.
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

/// What a communicator of such options has an executor run, or whoever else carries out the steps of its plans.
/// Scripts are made once for each size.
class PlanOperands {
 public:
  /// `options` outlive it.
  explicit PlanOperands(const PlanCommunicator::Options& options) : options_(&options) {}

  /// Parts with elements, without `index` and `staging`; none where there is nothing to do, which is so on all ranks.
  /// `what` begins the errors: elements that do not divide by the ranks, more staging than was planned.
  [[nodiscard]] std::optional<Executor::Operands> of(Collective collective,
                                                     std::span<const Communicator::Operand> parts,
                                                     runtime::DType dtype, std::string_view what);

 private:
  using RankSchedules = std::shared_ptr<const std::vector<RankSchedule>>;

  const PlanCommunicator::Options* options_;
  std::map<std::tuple<Collective, std::size_t, int>, RankSchedules> schedules_;  ///< by elements and chunks
};

}  // namespace ranvier::collectives
