#include "actors/predict/volume.hpp"

#include "collectives/plans/cost.hpp"
#include "collectives/plans/traffic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace ranvier::actors {

using collectives::Collective;
using collectives::Hop;
using collectives::Scope;
using collectives::Team;
using collectives::TeamKind;

namespace {

std::size_t index_of(TeamKind kind) { return static_cast<std::size_t>(kind); }

PhaseVolume times(PhaseVolume volume, std::uint64_t count) {
  for (SentVolume* sent : {&volume.intra_node, &volume.inter_node}) {
    sent->elements *= count;
    sent->bytes *= count;
  }
  volume.seconds *= static_cast<double>(count);
  return volume;
}

}  // namespace

SentVolume& SentVolume::operator+=(const SentVolume& other) noexcept {
  elements += other.elements;
  bytes += other.bytes;
  return *this;
}

PhaseVolume& PhaseVolume::operator+=(const PhaseVolume& other) noexcept {
  intra_node += other.intra_node;
  inter_node += other.inter_node;
  seconds += other.seconds;
  return *this;
}

PhaseVolume Volume::total() const noexcept {
  PhaseVolume sum = forward;
  sum += backward;
  sum += update;
  return sum;
}

struct VolumeCounter::Memory {
  /// No collective: pulls.
  using Key = std::tuple<std::optional<Collective>, TeamKind, std::size_t, runtime::DType>;
  std::map<Key, PhaseVolume> known;
};

VolumeCounter::VolumeCounter(VolumeOptions options)
    : options_(std::move(options)),
      layout_(options_.node_of_row.empty() ? options_.node_of : options_.node_of_row, options_.group_size, 0),
      memory_(std::make_unique<Memory>()) {
  const auto& rows = options_.node_of_row.empty() ? options_.node_of : options_.node_of_row;
  expect(rows.size() == options_.node_of.size(), "a column of {} ranks is laid out as {}", options_.node_of.size(),
         rows.size());
  for (int kind = 0; kind < collectives::team_kinds; ++kind) {
    teams_.push_back(teams_of(rows, options_.group_size, static_cast<TeamKind>(kind)));
    for (Team& team : teams_.back()) {
      for (std::size_t m = 0; m < team.members.size(); ++m) {
        team.topology.node_of[m] = options_.node_of[static_cast<std::size_t>(team.members[m])];
      }
    }
  }
}

VolumeCounter::~VolumeCounter() = default;

Volume VolumeCounter::count(std::span<const UnitTraffic> units, const UnitShardings& shardings) {
  const collectives::ShardFlow of_trained = layout_.flow(shardings.trained);
  const collectives::ShardFlow of_frozen = layout_.flow(shardings.frozen);
  const auto [compute, gradient] = options_.precision;
  Volume volume;
  for (const UnitTraffic& unit : units) {
    const collectives::ShardFlow& flow = unit.trained ? of_trained : of_frozen;
    const auto gathered = [&, compute = compute](const std::vector<Hop>& hops) -> PhaseVolume {
      // Nothing is gathered if layers read the parameters in place.
      if (are_in_place(
              unit.trained, shardings, layout_.ranks(), layout_.group_size(), options_.precision,
              unit.trained ? options_.trained_parameters.value_or(options_.parameters) : options_.parameters))
        return {};
      return options_.pulls ? pulled(hops, unit.elements, compute) : of(hops, unit.elements, compute);
    };
    volume.forward += times(gathered(flow.gather_forward), unit.forward_gathers);
    volume.backward += times(gathered(flow.gather_backward), unit.backward_gathers);
    if (!unit.trained) continue;
    volume.backward += times(of(flow.reduce_microbatch, unit.elements, gradient), unit.reductions);
    volume.update += of(flow.reduce_batch, unit.elements, gradient);
    volume.update += of(flow.gather_gradient, unit.elements, gradient);
    volume.update += of(flow.refresh, unit.elements, compute);
  }
  return volume;
}

PhaseVolume VolumeCounter::of(std::span<const Hop> hops, std::size_t unit_elements, runtime::DType dtype) {
  PhaseVolume volume;
  for (const Hop& hop : hops) volume += of(hop, unit_elements, dtype);
  return volume;
}

PhaseVolume VolumeCounter::of(const Hop& hop, std::size_t unit_elements, runtime::DType dtype) {
  const std::size_t elements = layout_.range(hop.whole, unit_elements).count;
  const auto [place, is_new] = memory_->known.try_emplace({hop.collective, hop.team, elements, dtype});
  PhaseVolume& volume = place->second;
  if (!is_new) return volume;
  const collectives::PlanChoice& choice = options_.algorithms[index_of(hop.team)];
  const auto& teams = teams_[index_of(hop.team)];
  for (const Team& team : teams) {
    const collectives::Traffic traffic =
        collectives::traffic_of(team, choice, {.collective = hop.collective, .parts = {elements}, .dtype = dtype});
    volume.intra_node += {traffic.intra_node, traffic.intra_node * size_of(dtype)};
    volume.inter_node += {traffic.inter_node, traffic.inter_node * size_of(dtype)};
  }
  volume.seconds = seconds_together(teams, options_.node_of, choice.algorithm_of(hop.collective), choice, elements,
                                    dtype, options_.links);
  return volume;
}

PhaseVolume VolumeCounter::pulled(std::span<const Hop> hops, std::size_t unit_elements, runtime::DType dtype) {
  if (hops.empty()) return {};
  // Pulled shards come directly from their owners, regardless of the teams of the collectives.
  const bool of_column =
      std::any_of(hops.begin(), hops.end(), [](const Hop& hop) { return hop.piece == Scope::global; });
  const TeamKind kind = of_column ? TeamKind::column : TeamKind::group;
  const auto [place, is_new] = memory_->known.try_emplace({std::nullopt, kind, unit_elements, dtype});
  PhaseVolume& volume = place->second;
  if (!is_new) return volume;
  const std::size_t piece = layout_.range(of_column ? Scope::global : Scope::group, unit_elements).count;
  const auto ranks = static_cast<int>(options_.node_of.size());
  collectives::Plan plan{.name = "pulls", .elements = unit_elements, .ranks = {}};
  plan.ranks.resize(options_.node_of.size(), std::vector<collectives::Step>(1));
  for (const Team& team : teams_[index_of(kind)]) {
    for (const int owner : team.members) {
      for (const int other : team.members) {
        if (owner == other) continue;
        using collectives::Action;
        plan.ranks[static_cast<std::size_t>(owner)][0].push_back({Action::send, other, {0, piece}});
        plan.ranks[static_cast<std::size_t>(other)][0].push_back({Action::receive, owner, {0, piece}});
      }
    }
  }
  const collectives::Topology column{ranks, 1, options_.node_of};
  const collectives::Traffic traffic = collectives::traffic_of(plan, column);
  volume.intra_node = {traffic.intra_node, traffic.intra_node * size_of(dtype)};
  volume.inter_node = {traffic.inter_node, traffic.inter_node * size_of(dtype)};
  volume.seconds = collectives::seconds(plan, column, {.links = options_.links, .element_bytes = size_of(dtype)});
  return volume;
}

}  // namespace ranvier::actors
