#include "actors/schedule/chunk_schedule.hpp"

#include <algorithm>
#include <numeric>

namespace ranvier::actors {

std::vector<ChunkSchedule::Bucket> ChunkSchedule::buckets(const Chunk& chunk) const {
  std::vector<Bucket> all;
  for (std::size_t b = chunk.begin; b < chunk.end; ++b) {
    all.insert(all.end(), bundles[b].buckets.begin(), bundles[b].buckets.end());
  }
  return all;
}

std::vector<std::size_t> ChunkSchedule::as_reduced() const {
  std::vector<std::size_t> order(bundles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::vector<std::size_t> ChunkSchedule::from_the_front() const {
  std::vector<std::size_t> order = as_reduced();
  std::ranges::stable_sort(order, {}, [this](std::size_t bundle) { return bundles[bundle].front; });
  return order;
}

ChunkSchedule chunk_schedule(std::span<const ChunkUnit> units, const ChunkOptions& options) {
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (units[a].tied != units[b].tied) return units[b].tied;
    return units[a].tied ? units[a].number < units[b].number : units[a].front > units[b].front;
  });

  ChunkSchedule schedule;
  bool bundle_open = false, chunk_open = false;
  std::size_t bytes = 0;  // bytes of the current bundle
  for (const std::size_t u : order) {
    if (units[u].tied) bundle_open = chunk_open = false;
    for (std::size_t b = 0; b < units[u].bucket_bytes.size(); ++b) {
      if (!bundle_open) {
        if (!chunk_open) schedule.chunks.push_back({schedule.bundles.size(), schedule.bundles.size()});
        schedule.bundles.push_back({.buckets = {}, .front = units[u].front});
        chunk_open = ++schedule.chunks.back().end - schedule.chunks.back().begin != options.chunk_buckets;
        bytes = 0;
      }
      ChunkSchedule::Bundle& bundle = schedule.bundles.back();
      bundle.buckets.push_back({u, b});
      bundle.front = std::min(bundle.front, units[u].front);
      bytes += units[u].bucket_bytes[b];
      bundle_open = bytes < options.bundle_bytes;
    }
  }
  return schedule;
}

}  // namespace ranvier::actors
