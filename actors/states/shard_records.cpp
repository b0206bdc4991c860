#include "actors/states/shard_records.hpp"

#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/base/error.hpp"

#include <utility>

namespace ranvier::actors {

using collectives::Range;

void ShardRecords::reserve(PlanContext& planner, TierKind tier, runtime::MemoryKind kind, const std::string& name) {
  tier_ = tier;
  region_ = planner.regions.reserve(tier, kind, name, layout_.region_bytes(), planner.memory);
}

ShardRecords::Run ShardRecords::run_from(std::size_t begin, std::size_t array) const {
  expect(range_.contains({begin, 1}), "element {} is not in elements {} to {}", begin, range_.begin,
         range_.begin + range_.count);
  const std::size_t piece = (begin - range_.begin) / cut_.piece_elements();
  const std::size_t in_piece = (begin - range_.begin) % cut_.piece_elements();
  const std::size_t bucket = in_piece / cut_.slice(0).count;  // only the last slice may be shorter
  const Range slice = cut_.slice(bucket);
  const std::size_t in_record = piece * slice.count + in_piece - slice.begin;
  return {bucket, begin, slice.begin + slice.count - in_piece,
          layout_.record_offset(bucket) + layout_.array_offset(bucket, array) + in_record * widths_[array]};
}

std::vector<ShardRecords::Run> ShardRecords::runs() const {
  std::vector<Run> all;
  for (std::size_t bucket = 0; bucket < layout_.buckets(); ++bucket) {
    for (const Range& run : cut_.runs(range_, bucket)) {
      all.push_back(run_from(run.begin));
    }
  }
  return all;
}

void ShardRecords::add_ranges(const std::byte* image, std::vector<runtime::ConstBytes>& ranges) const {
  for (std::size_t begin = 0; begin < range_.count;) {
    const Run run = run_from(range_.begin + begin);
    ranges.emplace_back(image + run.offset, run.count * widths_.front());
    begin += run.count;
  }
}

std::byte* ShardRecords::memory(const RankContext& context, std::size_t offset) const {
  return context.tiers.memory(region_).data() + offset;
}

StatePlace ShardRecords::place(const RankContext& context, std::size_t offset) const {
  if (in_files()) return {.region = region_, .offset = offset};
  return {.memory = memory(context, offset)};
}

void ShardRecords::move_record(const RankContext& context, offload::IoKind kind, std::size_t bucket,
                               std::size_t offset, std::span<std::byte> memory, runtime::Handler done) const {
  context.tiers.move(kind, region_, layout_.record_offset(bucket) + offset, {memory}, std::move(done));
}

void ShardRecords::move(const RankContext& context, offload::IoKind kind, std::byte* data, std::size_t first,
                        runtime::Handler done) const {
  if (layout_.buckets() == 0) return context.loop.post(std::move(done));
  const auto all_done = runtime::last_of(layout_.buckets(), std::move(done));
  for (std::size_t bucket = 0; bucket < layout_.buckets(); ++bucket) {
    offload::Tiers::StridedLayout runs;
    for (const Range& run : cut_.runs(range_, bucket)) {
      runs.emplace_back(data + (run.begin - first) * widths_.front(), run.count * widths_.front());
    }
    context.tiers.move(kind, region_, layout_.record_offset(bucket), std::move(runs), all_done);
  }
}

}  // namespace ranvier::actors
