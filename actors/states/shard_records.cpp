#include "actors/states/shard_records.hpp"

#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using offload::Tier;

ShardRecords::ShardRecords(const BucketPartition& cut, Range range, std::vector<runtime::DType> dtypes,
                           ElementSet in_last)
    : cut_(cut), range_(range), dtypes_(std::move(dtypes)), in_last_(std::move(in_last)) {
  if (in_last_.has_all() || range.count == 0) return;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> counts;  // by shard of the unit and bucket
  for (const Range& part : in_last_.in({0, std::numeric_limits<std::size_t>::max()})) {
    for (std::size_t at = part.begin, end = part.begin + part.count, n = 0; at < end; at += n) {
      const std::size_t in_piece = at % cut_.piece_elements(), slice = cut_.slice(0).count;
      n = std::min({end - at, slice - in_piece % slice, cut_.piece_elements() - in_piece});
      counts[{at / range.count, in_piece / slice}] += n;
    }
  }
  most_in_last_ = 0;
  for (const auto& [key, count] : counts) most_in_last_ = std::max(most_in_last_, count);
}

void ShardRecords::reserve(PlanContext& planner, TierKind tier, runtime::MemoryKind kind, const std::string& name) {
  if (tier == TierKind::device || region_bytes() == 0) return;
  tier_ = tier;
  region_ = planner.regions.reserve(tier, kind, name, region_bytes(), planner.memory);
}

std::size_t ShardRecords::array_offset(std::size_t bucket, std::size_t array) const noexcept {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < array; ++i) {
    const std::size_t has = i + 1 < dtypes_.size() ? elements(bucket) : std::min(most_in_last_, elements(bucket));
    offset += runtime::round_up(runtime::bytes_of(dtypes_[i], has), runtime::MemoryPlan::alignment);
  }
  return offset;
}

ShardRecords::Run ShardRecords::run_from(std::size_t begin, std::size_t array) const {
  expect(range_.contains({begin, 1}), "element {} is not in elements {} to {}", begin, range_.begin,
         range_.begin + range_.count);
  const std::size_t piece = (begin - range_.begin) / cut_.piece_elements();
  const std::size_t in_piece = (begin - range_.begin) % cut_.piece_elements();
  const std::size_t bucket = in_piece / cut_.slice(0).count;  // only the last slice may be shorter
  const Range slice = cut_.slice(bucket);
  std::size_t in_record = piece * slice.count + in_piece - slice.begin;
  std::size_t count = slice.begin + slice.count - in_piece;
  if (array + 1 == dtypes_.size() && !in_last_.has_all()) {
    const std::vector<Range> parts = in_last_.in({begin, count});
    expect(!parts.empty() && parts.front().begin == begin, "array {} of records has no element {}", array, begin);
    count = parts.front().count;
    in_record = in_last_.count({begin - (in_piece - slice.begin), in_piece - slice.begin});
    for (const Range& run : cut_.runs({range_.begin, piece * cut_.piece_elements()}, bucket))
      in_record += in_last_.count(run);
  }
  return {bucket, begin, count,
          record_offset(bucket) + array_offset(bucket, array) + runtime::bytes_of(dtypes_[array], in_record)};
}

std::vector<ShardRecords::Run> ShardRecords::runs() const {
  std::vector<Run> all;
  for (std::size_t done = 0; done < range_.count; done += all.back().count)
    all.push_back(run_from(range_.begin + done));
  return all;
}

void ShardRecords::add_ranges(const std::byte* image, std::vector<runtime::ConstBytes>& ranges) const {
  for (const Run& run : runs())
    ranges.emplace_back(image + run.offset, runtime::bytes_of(dtypes_.front(), run.count));
}

std::byte* ShardRecords::memory(const RankContext& context, std::size_t offset) const {
  return context.tiers.memory(region_).data() + offset;
}

StateLocation ShardRecords::place(const RankContext& context, std::size_t offset) const {
  if (in_files()) return {.region = region_, .offset = offset};
  return {.memory = memory(context, offset)};
}

void ShardRecords::move_record(const RankContext& context, IoKind kind, std::size_t bucket, std::size_t offset,
                               std::span<std::byte> memory, runtime::Handler done) const {
  context.tiers.move(kind, region_, record_offset(bucket) + offset, {memory}, std::move(done));
}

void ShardRecords::move_image(const RankContext& context, IoKind kind, std::byte* image,
                              runtime::Handler done) const {
  context.tiers.move(kind, region_, 0, {{image, region_bytes()}}, std::move(done));
}

void ShardRecords::copy(const RankContext& context, IoKind kind, std::byte* state, std::span<std::byte> values,
                        const runtime::WorkName& work, runtime::Handler done) {
  const bool writes = kind == IoKind::write;
  runtime::copy(context.compute, writes ? state : values.data(), writes ? values.data() : state, values.size());
  context.loop.after_work(context.compute, work, std::move(done));
}

void ShardRecords::access(const RankContext& context, IoKind kind, std::size_t offset, std::span<std::byte> values,
                          std::span<std::byte> staging, const runtime::WorkName& work,
                          runtime::Handler done) const {
  if (!in_files()) return copy(context, kind, memory(context, offset), values, work, std::move(done));
  constexpr std::size_t block = Tier::block_bytes;
  const std::size_t end = offset + values.size(), begin = offset / block * block;
  const std::span<std::byte> blocks = staging.first(Tier::whole_blocks(end) - begin);
  const auto move = [this, &context, blocks, begin](IoKind way, std::size_t at, std::size_t bytes,
                                                    runtime::Handler next) {
    context.tiers.move(way, region_, at, {blocks.subspan(at - begin, bytes)}, std::move(next));
  };
  const auto copy_and_go_on = [=, &context, done = std::move(done)] {
    copy(
        context, kind, blocks.data() + (offset - begin), values, work,
        kind == IoKind::read ? done : [=] { move(IoKind::write, begin, blocks.size(), done); });
  };
  if (kind == IoKind::read) return move(IoKind::read, begin, blocks.size(), copy_and_go_on);
  std::set<std::size_t> partial;  // blocks
  if (offset != begin) partial.insert(begin);
  if (end % block != 0) partial.insert(end / block * block);
  if (partial.empty()) return copy_and_go_on();
  const auto one_there = runtime::last_of(partial.size(), copy_and_go_on);
  for (const std::size_t at : partial) move(IoKind::read, at, block, one_there);
}

void ShardRecords::move(const RankContext& context, IoKind kind, std::byte* unit, runtime::Handler done) const {
  if (buckets() == 0) return context.loop.post(std::move(done));
  const auto all_done = runtime::last_of(buckets(), std::move(done));
  const auto bytes = [this](std::size_t count) { return runtime::bytes_of(dtypes_.front(), count); };
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
    offload::Tiers::StridedLayout runs;
    for (const Range& run : cut_.runs(range_, bucket)) runs.emplace_back(unit + bytes(run.begin), bytes(run.count));
    context.tiers.move(kind, region_, record_offset(bucket), std::move(runs), all_done);
  }
}

}  // namespace ranvier::actors
