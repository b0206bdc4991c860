#include "apps/collectives_choice.hpp"

#include "collectives/nccl_library.hpp"
#include "runtime/error.hpp"
#include "runtime/grid.hpp"

#include <utility>

namespace ranvier::apps {
namespace {

constexpr int first_version_with_shared_gpus = 23000;

/// Two ranks of a column on one GPU.
std::optional<std::pair<int, int>> sharers(const GridOptions& grid, const std::vector<std::int64_t>& gpus) {
  const runtime::Grid ranks(grid.shape, grid.ranks);
  for (int stage = 0; stage < grid.shape.g_inter; ++stage) {
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
std::optional<std::pair<std::string, std::string>> obstacle(const TrainOptions& options,
                                                            const NcclSituation& situation) {
  if (!situation.version) {
    return std::pair(
        situation.obstacle.empty() ? std::string("some ranks have no NCCL, or another one") : situation.obstacle,
        std::string("install the same NCCL everywhere"));
  }
  if (options.grid.shape.g_inter > 1 && options.device.point_to_point == PointToPoint::direct) {
    return std::pair(
        std::string("--p2p direct lets MPI reach the GPUs while NCCL is at work, and the two may wait for "
                    "each other for ever"),
        std::string("use --p2p staged"));
  }
  const auto pair = sharers(options.grid, situation.gpus);
  if (pair && *situation.version < first_version_with_shared_gpus) {
    return std::pair(fmt::format("ranks {} and {} share a GPU, which NCCL {} refuses", pair->first, pair->second,
                                 collectives::nccl_version_text(*situation.version)),
                     std::string("give each rank a GPU of its own, or install NCCL 2.30"));
  }
  return std::nullopt;
}

}  // namespace

CollectivesChoice choose_collectives(const TrainOptions& options, const NcclSituation& situation) {
  if (options.device.device != DeviceChoice::cuda || options.grid.shape.g_data == 1) return {};
  if (options.device.collectives == CollectiveCarrier::plans) return {false, "collectives: plans over messages"};
  const auto reason = obstacle(options, situation);
  if (!reason) return {true, "collectives: NCCL " + collectives::nccl_version_text(*situation.version)};
  if (options.device.collectives == CollectiveCarrier::nccl) {
    fail(ErrorCode::usage, "--collectives nccl, but {}: {}, or --collectives plans", reason->first, reason->second);
  }
  return {false, fmt::format("collectives: plans over messages, since {}", reason->first)};
}

bool nccl_needs_staging(const TrainOptions& options, const CollectivesChoice& choice) {
  return choice.nccl && options.grid.shape.g_inter > 1;
}

}  // namespace ranvier::apps
