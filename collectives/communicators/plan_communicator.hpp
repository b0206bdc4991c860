// Communicator that runs plans. Several may share an executor; each has its own range of Tag::index.
//
// Operations start in the order of the calls, as many at a time as there are staging buffers. This cannot deadlock:
// every rank has started, or can start, the first operation that some rank has not finished.
#pragma once

#include "collectives/communicators/communicator.hpp"
#include "collectives/communicators/executor.hpp"
#include "collectives/plans/algorithms.hpp"
#include "runtime/device/slot_pool.hpp"

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

struct CommunicatorOptions {
  Team team;
  int me = 0;              ///< index in team.members
  std::vector<int> ranks;  ///< MPI rank of each member
  PlanChoice choice;
  /// This communicator's range of Tag::index, used cyclically. An operation uses one per chunk.
  std::uint32_t first_index = 0, indices = 1 << 16;
  std::vector<std::byte*> staging;  ///< one buffer per running operation; others wait in order
  std::size_t staging_bytes = 0;    ///< bytes of each buffer
};

/// Arguments for the executor, or for another backend that runs the steps of plans. Schedules are cached by size.
class PlanOperands {
 public:
  /// `options` must outlive it.
  explicit PlanOperands(const CommunicatorOptions& options) : options_(&options) {}

  /// Non-empty parts, without `index` and `staging`; none, on all ranks, if there are no elements. `what` starts the
  /// errors: elements not divisible by the ranks, more staging than planned.
  [[nodiscard]] std::optional<Executor::Operands> of(Collective collective,
                                                     std::span<const Communicator::Operand> parts,
                                                     runtime::DType dtype, std::string_view what);

 private:
  using RankSchedules = std::shared_ptr<const std::vector<RankSchedule>>;

  const CommunicatorOptions* options_;
  std::map<std::tuple<Collective, std::size_t, int>, RankSchedules> schedules_;  ///< by elements and chunks
};

class PlanCommunicator final : public Communicator {
 public:
  using Options = CommunicatorOptions;

  /// Bytes of one staging buffer for any of `shapes`.
  [[nodiscard]] static std::size_t staging_bytes(const Team& team, int me, const PlanChoice& choice,
                                                 std::span<const OperationShape> shapes);

  /// Loop and executor must outlive it. With unfinished operations it ends only after the loop's last run.
  PlanCommunicator(runtime::EventLoop& loop, Executor& executor, Options options);

  [[nodiscard]] const Team& team() const noexcept override { return options_.team; }
  [[nodiscard]] int me() const noexcept override { return options_.me; }
  void run(Collective collective, std::span<const Operand> parts, runtime::DType dtype, std::string what,
           runtime::Handler done) override;

 private:
  [[nodiscard]] std::uint32_t take_indices(std::size_t count, const std::string& what);

  runtime::EventLoop& loop_;
  Executor& executor_;
  Options options_;
  std::uint32_t used_indices_ = 0;  ///< indices used since the last wrap-around
  PlanOperands plans_{options_};
  runtime::SlotPool staging_{options_.staging};
};

}  // namespace ranvier::collectives
