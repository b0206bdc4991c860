#include "apps/options/collectives_choice.hpp"

#include "collectives/nccl/nccl_library.hpp"
#include "runtime/base/grid.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/cuda_build.hpp"

#include <utility>

namespace ranvier::apps {
namespace {

constexpr int first_version_with_shared_gpus = 23000;

/// Two ranks of a column on one GPU; none if there are none.
std::optional<std::pair<int, int>> sharers(const runtime::GridShape& grid, const std::vector<std::int64_t>& gpus) {
  const runtime::Grid ranks(grid, grid.ranks());
  for (int stage = 0; stage < grid.g_inter; ++stage) {
    const std::vector<int> column = ranks.column(stage);
    for (std::size_t first = 0; first < column.size(); ++first) {
      for (std::size_t second = first + 1; second < column.size(); ++second) {
        if (gpus.at(static_cast<std::size_t>(column[first])) == gpus.at(static_cast<std::size_t>(column[second]))) {
          return std::pair(column[first], column[second]);
        }
      }
    }
  }
  return std::nullopt;
}

/// Reason why NCCL is not possible, and the remedy.
struct Obstacle {
  std::string reason, remedy;
};

/// Flag whose messages overlap a column's collectives: stages, or rows that exchange Muon's matrices. Empty: none.
std::string sends_beside_collectives(const actors::TrainerOptions& trainer) {
  if (trainer.grid.g_data == 1) return {};
  if (trainer.grid.g_inter > 1) return fmt::format("--g-inter {}", trainer.grid.g_inter);
  return trainer.tiers.rule == actors::UpdateRule::muon ? "--optimizer muon" : "";
}

/// Obstacle that follows from flags alone.
std::optional<Obstacle> obstacle(const TrainOptions& options) {
  const std::string flag = sends_beside_collectives(options.trainer);
  if (flag.empty() || options.device.point_to_point != PointToPoint::direct) return {};
  return Obstacle{
      fmt::format("--p2p direct with {} lets MPI access GPUs during NCCL collectives, which can deadlock", flag),
      "use --p2p staged"};
}

std::optional<Obstacle> obstacle(const TrainOptions& options, const NcclSituation& situation) {
  if (!situation.version) {
    return Obstacle{situation.obstacle.empty() ? "some ranks have no NCCL, or another version" : situation.obstacle,
                    "install the same NCCL on every node"};
  }
  if (auto in_flags = obstacle(options)) return in_flags;
  const auto pair = sharers(options.trainer.grid, situation.gpus);
  if (pair && *situation.version < first_version_with_shared_gpus) {
    return Obstacle{fmt::format("ranks {} and {} share a GPU, which NCCL {} does not support", pair->first,
                                pair->second, collectives::nccl_version_text(*situation.version)),
                    "use one GPU per rank, or install NCCL 2.30"};
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const Obstacle& obstacle) {
  reject("--collectives nccl is not possible: {}; {}, or use --collectives plans", obstacle.reason,
         obstacle.remedy);
}

}  // namespace

void check_collectives(const TrainOptions& options) {
  if (options.device.collectives != CollectiveBackend::nccl) return;
  if (!runtime::with_nccl)
    reject("--collectives nccl needs NCCL, which this build lacks; install NCCL and build with -DRANVIER_CUDA=ON");
  if (options.device.device != DeviceFlag::cuda)
    reject("--collectives nccl needs GPUs; add --device cuda or use --collectives plans");
  if (const auto found = obstacle(options)) refuse(*found);
}

CollectivesChoice choose_collectives(const TrainOptions& options, const NcclSituation& situation) {
  if (options.device.device != DeviceFlag::cuda || options.trainer.grid.g_data == 1) return {};
  if (!may_use_nccl(options)) return {false, "collectives: plans over messages"};
  const auto found = obstacle(options, situation);
  if (!found) return {true, "collectives: NCCL " + collectives::nccl_version_text(*situation.version)};
  if (options.device.collectives == CollectiveBackend::nccl) refuse(*found);
  return {false, fmt::format("collectives: plans over messages, since {}", found->reason)};
}

bool may_use_nccl(const TrainOptions& options) {
  return options.device.device == DeviceFlag::cuda && options.trainer.grid.g_data > 1 &&
         options.device.collectives != CollectiveBackend::plans;
}

bool nccl_needs_staging(const TrainOptions& options, bool nccl) {
  return nccl && !sends_beside_collectives(options.trainer).empty();
}

std::string nccl_memory_line(std::size_t taken_bytes) {
  std::string line =
      fmt::format("NCCL: {} of device memory outside the budget", runtime::format_bytes(taken_bytes));
  if (taken_bytes > runtime::cuda_reserve_bytes) {
    line += fmt::format(
        "; warning: only {} are reserved for NCCL and the driver; if memory runs out, lower --device-memory or "
        "NCCL's buffers (NCCL_MAX_CTAS, NCCL_BUFFSIZE)",
        runtime::format_bytes(runtime::cuda_reserve_bytes));
  }
  return line;
}

}  // namespace ranvier::apps
