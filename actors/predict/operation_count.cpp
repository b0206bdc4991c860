#include "actors/predict/operation_count.hpp"

#include "actors/optimizer/matrix_exchange.hpp"
#include "collectives/communicators/quantized_communicator.hpp"
#include "models/ops/orthogonalize.hpp"
#include "runtime/base/dtype.hpp"

#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace ranvier::actors {

using collectives::Action;
using collectives::Collective;
using collectives::Hop;
using collectives::TeamKind;
using Buckets = std::vector<ChunkSchedule::Bucket>;

namespace {

/// Counts the work of one rank's collectives; caches results, since units repeat.
class CollectiveCount {
 public:
  explicit CollectiveCount(const ModelShare& share) : share_(&share) {}

  /// Adds one operation per hop and bundle, or two for an all-reduce in blocks. `links`: types in messages.
  void add(std::span<const Hop> hops, const std::vector<Buckets>& bundles, runtime::DType dtype,
           const collectives::WireTypes::Links& links, OperationCount& count) {
    const ColumnOptions& column = *share_->column;
    for (const Hop& hop : hops) {
      const auto code = collectives::block_code(column.layout.wire_type(hop.team, links));
      const collectives::PlanChoice& choice = column.choices[static_cast<std::size_t>(hop.team)];
      const int ranks = column.layout.team(hop.team).topology.ranks();
      for (const Buckets& buckets : bundles) {
        std::vector<std::size_t> elements;
        std::vector<runtime::StridedLayout> runs;
        for (const auto& [u, index] : buckets) {
          const UnitState& unit = share_->states->all()[u];
          const BucketPartition::Spread part =
              unit.cut.spread(column.layout.range(hop.whole, unit.elements), index);
          elements.push_back(part.count);
          runs.push_back(part.runs);
        }
        const auto add_parts = [&](const collectives::OperationShape& shape) {
          const int chunks = choice.chunks(ranks, shape.parts, shape.dtype);
          ++count.collectives;
          for (std::size_t i = 0; i < shape.parts.size(); ++i) {
            const OperationCount& part = of_part({shape.collective, hop.team}, choice, shape.parts[i],
                                                 code ? runtime::StridedLayout() : runs[i], chunks);
            count.copies += part.copies;
            count.additions += part.additions;
            count.messages += part.messages;
          }
        };
        const collectives::OperationShape shape{.collective = hop.collective, .parts = elements, .dtype = dtype};
        if (!code) {
          add_parts(shape);
          continue;
        }
        for (const auto& packed : collectives::QuantizedCommunicator::packed_shapes(shape, *code)) {
          add_parts(packed);
          // Each part is encoded, and then added to the owner's or decoded.
          const bool sums = packed.collective == Collective::all_to_all;
          count.copies += (sums ? 1 : 2) * buckets.size();
          count.additions += sums ? buckets.size() : 0;
        }
      }
    }
  }

 private:
  using Key = std::tuple<Collective, TeamKind, std::size_t, std::size_t, int>;

  const OperationCount& of_part(std::pair<Collective, TeamKind> which, const collectives::PlanChoice& choice,
                                std::size_t elements, const runtime::StridedLayout& runs, int chunks) {
    const auto [collective, kind] = which;
    const auto [found, is_new] = known_.try_emplace(Key{collective, kind, elements, runs.run, chunks});
    OperationCount& part = found->second;
    if (!is_new) return part;
    const collectives::Team& team = share_->column->layout.team(kind);
    const int me = team.index_of(share_->column->layout.rank());
    for (const collectives::RankSchedule& schedule :
         choice.algorithm_of(collective).schedules(team.topology, elements, chunks, me)) {
      for (const auto& step : schedule.steps) {
        for (const auto& [action, peer, range] : step.operations) {
          const runtime::StridedLayout from{runs.run, runs.stride, range.begin};
          const bool packed = range.count > from.together(0);
          part.messages += action == Action::send;
          part.additions += action == Action::receive_add;
          part.copies += packed && action != Action::receive_add;
        }
      }
    }
    return part;
  }

  const ModelShare* share_;
  std::map<Key, OperationCount> known_;
};

}  // namespace

OperationCount count_operations(const ModelShare& share) {
  OperationCount count;
  std::vector<Buckets> chunks, bundles;
  for (const ChunkSchedule::Chunk& chunk : share.chunks.chunks) chunks.push_back(share.chunks.buckets(chunk));
  for (const ChunkSchedule::Bundle& bundle : share.chunks.bundles) bundles.push_back(bundle.buckets);
  for (const Buckets& buckets : bundles) {
    for (const auto& bucket : buckets) {
      const UnitState& unit = share.states->all()[bucket.unit];
      // With Muon: momentum, the orthogonal update and a rounded copy; AdamW per range of elements with v.
      const std::size_t launches = unit.matrices.empty() ? 1 : share.states->separate_master() ? 3 : 2;
      count.steps += stepped_ranges(unit).size() * launches;
      for (const collectives::Range& run : unit.cut.runs(unit.optimizer, bucket.index))
        count.steps += unit.matrices.empty() ? 0 : unit.v.stored.in(run).size();
      ++count.squares;
      if (!share.flow.gather_gradient.empty()) ++count.copies;
    }
  }
  count.squares += share.states->all().size();
  for (const UnitState& unit : share.states->all()) {
    for (const UnitMatrix& matrix : unit.matrices) {
      if (matrix.owner == share.column->layout.rank())
        count.steps += unit.spec->parameters[matrix.parameter].matrices.size() * models::orthogonalize_launches;
    }
  }
  count.messages += MatrixExchange::messages(share);
  const auto [compute, gradient] = share.states->precision();
  CollectiveCount collectives(share);
  const auto& [gather, reduce] = share.column->wire;
  collectives.add(share.flow.reduce_batch, chunks, gradient, reduce, count);
  collectives.add(share.flow.gather_gradient, bundles, gradient, reduce, count);
  collectives.add(share.flow.refresh, bundles, compute, gather, count);
  return count;
}

}  // namespace ranvier::actors
