#include "apps/train/kernels/collectives_choice.hpp"

#include "collectives/nccl_library.hpp"
#include "runtime/arena.hpp"
#include "runtime/cuda_build.hpp"
#include "runtime/cuda_memory.hpp"
#include "runtime/error.hpp"
#include "runtime/grid.hpp"

#include <utility>

namespace ranvier::apps {
namespace {

constexpr int first_version_with_shared_gpus = 23000;

/// Two ranks of a column on one GPU.
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

/// Why NCCL cannot be used, and what would help.
struct Obstacle {
  std::string reason, remedy;
};

/// Messages between stages are under way while a column's collectives are.
bool stages_send_beside_collectives(const runtime::GridShape& grid) { return grid.g_inter > 1 && grid.g_data > 1; }

/// As far as flags tell.
std::optional<Obstacle> obstacle(const TrainOptions& options) {
  if (!stages_send_beside_collectives(options.trainer.grid) ||
      options.device.point_to_point != PointToPoint::direct)
    return {};
  return Obstacle{
      fmt::format("--p2p direct with --g-inter {} lets MPI reach the GPUs while NCCL is at work, and the two "
                  "may wait for each other for ever",
                  options.trainer.grid.g_inter),
      "use --p2p staged"};
}

std::optional<Obstacle> obstacle(const TrainOptions& options, const NcclSituation& situation) {
  if (!situation.version) {
    return Obstacle{situation.obstacle.empty() ? "some ranks have no NCCL, or another one" : situation.obstacle,
                    "install the same NCCL everywhere"};
  }
  if (auto in_flags = obstacle(options)) return in_flags;
  const auto pair = sharers(options.trainer.grid, situation.gpus);
  if (pair && *situation.version < first_version_with_shared_gpus) {
    return Obstacle{fmt::format("ranks {} and {} share a GPU, which NCCL {} refuses", pair->first, pair->second,
                                collectives::nccl_version_text(*situation.version)),
                    "give each rank a GPU of its own, or install NCCL 2.30"};
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const Obstacle& obstacle) {
  fail(ErrorCode::usage, "--collectives nccl, but {}: {}, or --collectives plans", obstacle.reason,
       obstacle.remedy);
}

}  // namespace

void check_collectives(const TrainOptions& options) {
  if (options.device.collectives != CollectiveBackend::nccl) return;
  if (!runtime::with_nccl)
    fail(ErrorCode::usage,
         "--collectives nccl, and this build has no NCCL: install it, and build with -DRANVIER_CUDA=ON");
  if (options.device.device != DeviceFlag::cuda)
    fail(ErrorCode::usage, "--collectives nccl is for GPUs: give --device cuda, or --collectives plans");
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
  return nccl && stages_send_beside_collectives(options.trainer.grid);
}

std::string nccl_memory_line(std::size_t taken_bytes) {
  std::string line = fmt::format("NCCL: {} of device memory beside the budget", runtime::format_bytes(taken_bytes));
  if (taken_bytes > runtime::cuda_reserve_bytes) {
    line += fmt::format(
        "; warning: only {} are kept free for it and the driver: where memory runs out, lower --device-memory, or "
        "give NCCL fewer or smaller buffers (NCCL_MAX_CTAS, NCCL_BUFFSIZE)",
        runtime::format_bytes(runtime::cuda_reserve_bytes));
  }
  return line;
}

}  // namespace ranvier::apps
