#include "actors/predict/operation_count.hpp"

#include "actors/optimizer/matrix_exchange.hpp"
#include "models/ops/orthogonalize.hpp"
#include "runtime/base/dtype.hpp"

#include <map>
#include <span>
#include <tuple>
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

  /// Adds one operation per hop and bundle.
  void add(std::span<const Hop> hops, const std::vector<Buckets>& bundles, runtime::DType dtype,
           OperationCount& count) {
    const ColumnOptions& column = *share_->column;
    for (const Hop& hop : hops) {
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
        const int chunks = choice.chunks(ranks, elements, dtype);
        ++count.collectives;
        for (std::size_t i = 0; i < buckets.size(); ++i) {
          const OperationCount& part = of_part(hop, choice, elements[i], runs[i], chunks);
          count.copies += part.copies;
          count.additions += part.additions;
          count.messages += part.messages;
        }
      }
    }
  }

 private:
  using Key = std::tuple<Collective, TeamKind, std::size_t, std::size_t, int>;

  const OperationCount& of_part(const Hop& hop, const collectives::PlanChoice& choice, std::size_t elements,
                                const runtime::StridedLayout& runs, int chunks) {
    const auto [found, is_new] = known_.try_emplace(Key{hop.collective, hop.team, elements, runs.run, chunks});
    OperationCount& part = found->second;
    if (!is_new) return part;
    const collectives::Team& team = share_->column->layout.team(hop.team);
    const int me = team.index_of(share_->column->layout.rank());
    for (const collectives::RankSchedule& schedule :
         choice.algorithm_of(hop.collective).schedules(team.topology, elements, chunks, me)) {
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
      // With Muon: AdamW, momentum, the orthogonal update and a rounded copy.
      const std::size_t launches = unit.matrices.empty() ? 1 : share.states->separate_master() ? 4 : 3;
      count.steps += stepped_ranges(unit).size() * launches;
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
  collectives.add(share.flow.reduce_batch, chunks, gradient, count);
  collectives.add(share.flow.gather_gradient, bundles, gradient, count);
  collectives.add(share.flow.refresh, bundles, compute, count);
  return count;
}

}  // namespace ranvier::actors
