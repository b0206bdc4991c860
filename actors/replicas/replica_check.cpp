#include "actors/replicas/replica_check.hpp"

#include "actors/optimizer/optimizer.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using offload::IoKind;
using offload::Tier;
using runtime::SlotPool;

namespace {

constexpr std::size_t max_piece_bytes = std::size_t{2} << 20;
constexpr std::size_t staging_slots = 2;  // one is read while the other is hashed
constexpr std::size_t max_sets_looked_at =
    16;  // replica sets compared by segment; more do not help to find a cause
constexpr std::size_t max_pieces_looked_at = 64;  // segments compared by rank

// Ranks agree on doubles, so a hash travels as two exact 32-bit numbers.
constexpr std::size_t numbers_per_hash = 2;

void write_hash(std::vector<double>& numbers, std::size_t place, std::uint64_t hash) {
  numbers[numbers_per_hash * place] = static_cast<double>(hash >> 32);
  numbers[numbers_per_hash * place + 1] = static_cast<double>(hash & 0xffffffff);
}

std::uint64_t read_hash(const std::vector<double>& numbers, std::size_t place) {
  return static_cast<std::uint64_t>(numbers[numbers_per_hash * place]) << 32 |
         static_cast<std::uint64_t>(numbers[numbers_per_hash * place + 1]);
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& hashes) {
  return runtime::xxh3(std::as_bytes(std::span(hashes)));
}

std::size_t place_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

ReplicaCheck::Plan ReplicaCheck::plan(PlanContext& planner, std::vector<ReplicaSet> sets, int rank) {
  Plan plan{.sets = std::move(sets)};
  const std::vector<UnitState>& units = planner.share.states->all();
  std::map<std::string_view, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u) unit_of.emplace(units[u].spec->name, u);
  std::size_t max_bytes = 0;
  for (std::size_t s = 0; s < plan.sets.size(); ++s) {
    const ReplicaSet& set = plan.sets[s];
    if (place_of(set.ranks, rank) == set.ranks.size()) continue;
    plan.copies.push_back({s, unit_of.at(set.unit)});
    max_bytes = std::max(max_bytes, runtime::bytes_of(set.dtype, set.range.count));
  }
  if (plan.copies.empty()) return plan;
  plan.piece_bytes = Tier::whole_blocks(std::min(max_bytes, max_piece_bytes));
  const bool in_files =
      std::ranges::any_of(units, [](const UnitState& unit) { return unit.tier == TierKind::nvme; });
  const std::size_t blocks = in_files ? plan.piece_bytes + 2 * Tier::block_bytes : 0;
  plan.staging =
      SlotPool::plan(planner.memory, {runtime::MemoryKind::workspace, runtime::MemorySpace::pinned,
                                      "states to be compared", plan.piece_bytes + blocks, staging_slots});
  return plan;
}

ReplicaCheck::ReplicaCheck(const RankContext& context, const ModelShare& share, const Plan& plan,
                           Optimizer& optimizer, Consensus& consensus)
    : context_(&context),
      states_(share.states.get()),
      plan_(plan),
      optimizer_(&optimizer),
      consensus_(&consensus),
      slots_(context.arena, plan.staging) {
  hashes_on_ = context.host.make_stream("hashes of states", runtime::StreamWidth::one);
  copy_of_set_.resize(plan_.sets.size());
  for (const Plan::Copy& copy : plan_.copies) {
    copy_of_set_[copy.set] = hashes_.size();
    hashes_.emplace_back(pieces_of(plan_.sets[copy.set]));
  }
}

std::string ReplicaCheck::details() const {
  if (!done_ || plan_.copies.empty()) return {};
  const ReplicaSet& set = set_of(std::min(next_copy_, plan_.copies.size() - 1));
  return fmt::format("at the {} of {}", to_string(set.array), set.unit);
}

std::size_t ReplicaCheck::pieces_of(const ReplicaSet& set) const {
  const std::size_t most = runtime::elements_in(max_piece_bytes, set.dtype);
  return runtime::ceil_divide(set.range.count, most);
}

Range ReplicaCheck::piece_of(const ReplicaSet& set, std::size_t number) const {
  const std::size_t most = runtime::elements_in(max_piece_bytes, set.dtype);
  const std::size_t begin = number * most;
  return {set.range.begin + begin, std::min(most, set.range.count - begin)};
}

void ReplicaCheck::run(std::int64_t step, std::function<void(const ReplicaReport&)> done) {
  done_ = std::move(done);
  report_ = {.step = step};
  began_ = context_->loop.now();
  next_copy_ = next_piece_ = 0;
  missing_ = 0;
  for (const auto& hashes : hashes_) missing_ += hashes.size();
  if (missing_ == 0) return compare();
  read_next();
}

void ReplicaCheck::read_next() {
  if (reading_ || !slots_.has_free() || next_copy_ == plan_.copies.size()) return;
  const ReplicaSet& set = set_of(next_copy_);
  const Transfer piece{next_copy_, next_piece_, piece_of(set, next_piece_)};
  if (++next_piece_ == pieces_of(set)) {
    ++next_copy_;
    next_piece_ = 0;
  }
  reading_ = true;
  const SlotPool::Slot slot = slots_.take();  // space for the values, then for whole file blocks
  const std::size_t bytes = runtime::bytes_of(set.dtype, piece.range.count);
  report_.bytes += bytes;
  const auto here = [this, piece, slot] {
    reading_ = false;
    hash(piece, slot);
    read_next();
  };
  const std::span blocks = std::span(slot.data(), plan_.staging.bytes).subspan(plan_.piece_bytes);
  optimizer_->access_state({IoKind::read, plan_.copies[piece.copy].unit, set.array, piece.range.begin,
                            std::span(slot.data(), bytes), here, blocks});
}

void ReplicaCheck::clear_gaps(const Transfer& piece, std::span<std::byte> values) const {
  const ReplicaSet& set = set_of(piece.copy);
  if (runtime::is_in_blocks(set.dtype)) return;  // only moments are, whose padding stays zero
  const std::size_t element = runtime::size_of(set.dtype);
  const models::UnitSpec& unit = *states_->all()[plan_.copies[piece.copy].unit].spec;
  const std::size_t begin = piece.range.begin, end = begin + piece.range.count;
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const std::size_t from = unit.offset(p) + unit.parameters[p].elements();
    const std::size_t to = p + 1 < unit.parameters.size() ? unit.offset(p + 1) : unit.elements();
    const std::size_t first = std::max(from, begin), last = std::min(to, end);
    if (first < last) std::memset(values.data() + (first - begin) * element, 0, (last - first) * element);
  }
}

void ReplicaCheck::hash(const Transfer& piece, const SlotPool::Slot& slot) {
  const std::size_t bytes = runtime::bytes_of(set_of(piece.copy).dtype, piece.range.count);
  const std::span<std::byte> values(slot.data(), bytes);
  hashes_on_->launch(runtime::elementwise_cost(bytes), [this, piece, values](runtime::ComputePool&) {
    clear_gaps(piece, values);
    hashes_[piece.copy][piece.number] = runtime::xxh3(values);
  });
  context_->loop.after_work(*hashes_on_, {name(), "the hash of a segment of", set_of(piece.copy).unit},
                            [this, slot] {
                              slot.release();
                              if (--missing_ == 0) return compare();
                              read_next();
                            });
}

std::optional<std::uint64_t> ReplicaCheck::hash_here(const Compared& item) const {
  const std::optional<std::size_t> copy = copy_of_set_[item.set];
  if (!copy) return std::nullopt;
  return item.piece ? hashes_[*copy][*item.piece] : hash_of(hashes_[*copy]);
}

/// Message sizes grow with `items`, not with the number of ranks.
void ReplicaCheck::find_differing(std::vector<Compared> items, std::size_t most,
                                  std::function<void(std::vector<Compared>)> then) {
  agreed_.assign(numbers_per_hash * items.size(), 0.0);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (plan_.sets[items[i].set].ranks.front() == context_->transport.rank())
      write_hash(agreed_, i, hash_here(items[i]).value());
  consensus_->agree(agreed_, [this, items = std::move(items), most, then = std::move(then)]() mutable {
    std::vector<double> other_hashes(items.size());  // 1: differs from the first rank's hash
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto mine = hash_here(items[i]);
      other_hashes[i] = mine && *mine != read_hash(agreed_, i) ? 1 : 0;
    }
    agreed_ = std::move(other_hashes);
    consensus_->agree(agreed_, [this, items = std::move(items), most, then = std::move(then)] {
      std::vector<Compared> differing;
      for (std::size_t i = 0; i < items.size() && differing.size() < most; ++i)
        if (agreed_[i] > 0) differing.push_back(items[i]);
      then(std::move(differing));
    });
  });
}

void ReplicaCheck::compare() {
  std::vector<Compared> sets;
  for (std::size_t s = 0; s < plan_.sets.size(); ++s) sets.push_back({s, std::nullopt});
  find_differing(std::move(sets), max_sets_looked_at, [this](const std::vector<Compared>& differing) {
    std::vector<Compared> pieces;
    for (const Compared& each : differing)
      for (std::size_t p = 0; p < pieces_of(plan_.sets[each.set]); ++p) pieces.push_back({each.set, p});
    if (pieces.empty()) return finish();
    find_differing(std::move(pieces), max_pieces_looked_at,
                   [this](std::vector<Compared> odd) { find_ranks(std::move(odd)); });
  });
}

void ReplicaCheck::find_ranks(std::vector<Compared> pieces) {
  agreed_.clear();  // hashes of each segment's ranks, in rank order
  std::size_t place = 0;
  for (const Compared& piece : pieces) {
    const std::vector<int>& ranks = plan_.sets[piece.set].ranks;
    agreed_.resize(numbers_per_hash * (place + ranks.size()));
    if (const auto hash = hash_here(piece))
      write_hash(agreed_, place + place_of(ranks, context_->transport.rank()), *hash);
    place += ranks.size();
  }
  consensus_->agree(agreed_, [this, pieces = std::move(pieces)] {
    std::size_t next = 0;
    for (const Compared& piece : pieces) {
      const ReplicaSet& set = plan_.sets[piece.set];
      std::vector<std::uint64_t> hashes;
      while (hashes.size() < set.ranks.size()) hashes.push_back(read_hash(agreed_, next++));
      ReplicaMismatch damage{.unit = set.unit, .array = set.array, .range = piece_of(set, *piece.piece)};
      const std::vector<std::size_t> odd = odd_copies(hashes);
      for (std::size_t c = 0; c < set.ranks.size(); ++c) {
        const bool is_odd = std::ranges::find(odd, c) != odd.end();
        (is_odd ? damage.ranks : damage.others).push_back(set.ranks[c]);
      }
      report_.damage.push_back(std::move(damage));
    }
    finish();
  });
}

void ReplicaCheck::finish() {
  report_.seconds = runtime::seconds(context_->loop.now() - began_);
  std::exchange(done_, nullptr)(report_);
}

void ReplicaCheck::damage(StateKind array, runtime::Handler done) {
  std::size_t copy = 0;
  while (copy < plan_.copies.size() && set_of(copy).array != array) ++copy;
  if (copy == plan_.copies.size())
    fail(ErrorCode::usage, "RANVIER_FAULT needs replicated states; rank {} has no replicated {}",
         context_->transport.rank(), to_string(array));
  const ReplicaSet& set = set_of(copy);
  const std::size_t unit = plan_.copies[copy].unit, element = set.range.begin;
  const std::size_t bytes = runtime::bytes_of(set.dtype, 1);
  const std::span<std::byte> value(context_->arena.slot(plan_.staging.memory), bytes);
  if (array == StateKind::parameters && !states_->all()[unit].on_device())
    fail(ErrorCode::usage, "RANVIER_FAULT cannot damage parameters off the device; remove `parameter_tier`");
  optimizer_->access_state({IoKind::read, unit, array, element, value, [=, this, done = std::move(done)] {
                              value[0] ^= std::byte{1};
                              optimizer_->access_state({IoKind::write, unit, array, element, value, done});
                            }});
}

}  // namespace ranvier::actors
