#include "collectives/nccl/nccl_steps.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

namespace {

using Operand = Communicator::Operand;
using Kind = NcclCall::Kind;

constexpr std::size_t arrival_alignment = 64;

std::size_t align(std::size_t bytes) { return runtime::round_up(bytes, arrival_alignment); }

bool is_contiguous(const Operand& part) { return part.run == part.stride; }

/// Calls `use` with address and count of every contiguous part of `range`, in order; identical on all ranks.
template <typename Use>
void for_each_stretch(const Operand& part, Range range, runtime::DType dtype, Use use) {
  const std::size_t bytes = size_of(dtype);
  if (is_contiguous(part)) {
    if (range.count > 0) use(part.data + range.begin * bytes, range.count);
    return;
  }
  while (range.count > 0) {
    const std::size_t inside = range.begin % part.run;
    const std::size_t count = std::min(range.count, part.run - inside);
    use(part.data + (range.begin / part.run * part.stride + inside) * bytes, count);
    range = {range.begin + count, range.count - count};
  }
}

/// Memory for packed data of a step; grows from the start.
struct Room {
  std::byte* at = nullptr;
  std::size_t left = 0;

  /// Returns null if the memory is full.
  std::byte* take(std::size_t bytes) {
    if (at == nullptr || align(bytes) > left) return nullptr;
    left -= align(bytes);
    return std::exchange(at, at + align(bytes));
  }
};

Room room_of(const NcclPacking& packing, NcclSpan span) {
  return {span == NcclSpan::row ? packing.row : packing.others, packing.bytes};
}

void check(const Operand& part, int ranks) {
  expect(part.elements % static_cast<std::size_t>(ranks) == 0, "{} elements are not divisible by {} ranks",
         part.elements, ranks);
  expect(part.run == 0 ? part.stride == 0 : part.stride >= part.run,
         "a part of a collective has invalid runs: {} elements, stride {}", part.run, part.stride);
}

/// Adds the calls of a collective on a range that `ranks` ranks shard evenly, in the order of NCCL ranks.
void append(NcclStep& stage, Collective collective, const Operand& part, Range range, int ranks, int me,
            runtime::DType dtype, Room& room) {
  if (range.count == 0) return;
  std::vector<NcclCall>& calls = stage.calls;
  const std::size_t width = size_of(dtype), owned = range.count / static_cast<std::size_t>(ranks);
  const runtime::StridedLayout runs{part.run, part.stride, range.begin};
  std::byte* const packed = range.count > runs.together(0) ? room.take(range.count * width) : nullptr;
  if (packed != nullptr) {
    // Offset of this rank's shard: its data before a gather, or after a reduce-scatter.
    const std::size_t before = static_cast<std::size_t>(me) * owned;
    const runtime::StridedLayout my_runs{part.run, part.stride, range.begin + before};
    const bool gathered = collective == Collective::all_gather,
               scattered = collective == Collective::reduce_scatter;
    stage.packs.push_back({packed + (gathered ? before * width : 0),
                           {},
                           part.data,
                           gathered ? my_runs : runs,
                           gathered ? owned : range.count});
    append(stage, collective, {packed, range.count}, {0, range.count}, ranks, me, dtype, room);
    stage.unpacks.push_back({part.data,
                             scattered ? my_runs : runs,
                             packed + (scattered ? before * width : 0),
                             {},
                             scattered ? owned : range.count});
    return;
  }
  if (collective == Collective::all_reduce) {
    for_each_stretch(part, range, dtype, [&](std::byte* data, std::size_t count) {
      calls.push_back({Kind::all_reduce, data, data, count});
    });
    return;
  }
  const bool gathers = collective == Collective::all_gather;
  const std::size_t piece = owned;
  if (is_contiguous(part)) {
    std::byte* const whole = part.data + range.begin * size_of(dtype);
    std::byte* const mine = whole + static_cast<std::size_t>(me) * piece * size_of(dtype);
    calls.push_back(
        {gathers ? Kind::all_gather : Kind::reduce_scatter, gathers ? mine : whole, gathers ? whole : mine, piece});
    return;
  }
  for (int owner = 0; owner < ranks; ++owner) {
    const Range of_owner{range.begin + static_cast<std::size_t>(owner) * piece, piece};
    for_each_stretch(part, of_owner, dtype, [&](std::byte* data, std::size_t count) {
      calls.push_back({gathers ? Kind::broadcast : Kind::reduce, data, data, count, owner});
    });
  }
}

void add_stage(std::vector<NcclStep>& stages, NcclStep stage) {
  if (!stage.calls.empty() || !stage.sums.empty()) stages.push_back(std::move(stage));
}

std::size_t chunks_of(const PartSchedules& schedules) { return schedules.empty() ? 0 : schedules.front()->size(); }

}  // namespace

NcclMode nccl_mode(std::string_view algorithm) noexcept {
  if (algorithm == "auto") return NcclMode::own;
  return algorithm == "hierarchical" ? NcclMode::hierarchical : NcclMode::plan;
}

bool sums_follow_plans(const NcclModes& modes) noexcept {
  return modes[static_cast<std::size_t>(Collective::reduce_scatter)] == NcclMode::plan &&
         modes[static_cast<std::size_t>(Collective::all_reduce)] == NcclMode::plan;
}

std::vector<NcclStep> own_stages(Collective collective, const Topology& topology, int me,
                                 std::span<const Operand> parts, runtime::DType dtype, const NcclPacking& packing) {
  std::vector<NcclStep> stages;
  NcclStep stage;
  Room room = room_of(packing, stage.span);
  for (const Operand& part : parts) {
    check(part, topology.ranks());
    append(stage, collective, part, {0, part.elements}, topology.ranks(), topology.piece(me), dtype, room);
  }
  add_stage(stages, std::move(stage));
  return stages;
}

std::vector<HierarchicalPart> hierarchical_parts(Collective collective) {
  constexpr HierarchicalPart scatter{Collective::reduce_scatter, NcclSpan::row};
  constexpr HierarchicalPart gather{Collective::all_gather, NcclSpan::row};
  if (collective == Collective::all_gather) return {{collective, NcclSpan::column}, gather};
  if (collective == Collective::reduce_scatter) return {scatter, {collective, NcclSpan::column}};
  return {scatter, {collective, NcclSpan::column}, gather};
}

std::vector<NcclStep> hierarchical_stages(Collective collective, const Topology& topology, int me,
                                          std::span<const Operand> parts, runtime::DType dtype,
                                          const NcclPacking& packing) {
  const int inner = topology.inner, outer = topology.outer;
  if (inner == 1 || outer == 1) return own_stages(collective, topology, me, parts, dtype, packing);
  const int i = me % inner, o = me / inner;
  // The pieces of the ranks at one position of all rows form a contiguous range (topology.hpp). So do the gathered
  // pieces of a row.
  const auto stage = [&](Collective of, NcclSpan span) {
    NcclStep made{.span = span};
    Room room = room_of(packing, span);
    for (const Operand& part : parts) {
      check(part, topology.ranks());
      const std::size_t shared = part.elements / static_cast<std::size_t>(inner);
      if (span == NcclSpan::row) {
        append(made, of, part, {0, part.elements}, inner, i, dtype, room);
      } else {
        append(made, of, part, {static_cast<std::size_t>(i) * shared, shared}, outer, o, dtype, room);
      }
    }
    return made;
  };
  std::vector<NcclStep> stages;
  for (const auto& [part, span] : hierarchical_parts(collective)) add_stage(stages, stage(part, span));
  return stages;
}

std::vector<NcclStep> plan_stages(const Topology& topology, std::span<const Operand> parts,
                                  const PartSchedules& schedules, int depth, std::byte* staging,
                                  runtime::DType dtype) {
  expect(parts.size() == schedules.size(), "a collective has {} parts, but schedules for {}", parts.size(),
         schedules.size());
  expect(depth > 0, "a collective needs at least one chunk in flight, not {}", depth);
  std::vector<NcclStep> stages;
  const std::size_t chunks = chunks_of(schedules), together = static_cast<std::size_t>(depth);
  for (std::size_t first = 0; first < chunks; first += together) {
    const std::size_t end = std::min(chunks, first + together);
    std::size_t steps = 0;
    for (const auto& of_part : schedules) {
      expect(of_part->size() == chunks, "the parts of a collective have different numbers of chunks: {} and {}",
             chunks, of_part->size());
      for (std::size_t chunk = first; chunk < end; ++chunk) steps = std::max(steps, (*of_part)[chunk].steps.size());
    }
    for (std::size_t number = 0; number < steps; ++number) {
      NcclStep stage;
      std::byte* arrival = staging;  // the stream adds earlier data here before it receives again
      for (std::size_t chunk = first; chunk < end; ++chunk) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
          const RankSchedule& schedule = (*schedules[part])[chunk];
          if (number >= schedule.steps.size()) continue;
          for (const RankSchedule::Message& message : schedule.steps[number].messages) {
            const int peer = topology.piece(message.peer);
            for (const Range& range : message.ranges) {
              if (range.count == 0) continue;
              const std::size_t width = size_of(dtype), count = range.count;
              runtime::StridedLayout runs{parts[part].run, parts[part].stride, range.begin};
              std::byte* data = parts[part].data;
              const bool packed = count > runs.together(0);  // same condition as in executor.cpp
              if (!packed) {
                data += runs.at(0) * width;
                runs = {};
              }
              std::byte* place = data;
              if (packed || message.action == Action::receive_add) {
                place = arrival;
                arrival += align(count * width);
              }
              if (message.action == Action::send) {
                if (packed) stage.packs.push_back({place, {}, data, runs, count});
                stage.calls.push_back({Kind::send, place, nullptr, count, peer});
                continue;
              }
              stage.calls.push_back({Kind::receive, nullptr, place, count, peer});
              if (message.action == Action::receive_add) {
                stage.sums.push_back({data, runs, place, {}, count});
              } else if (packed) {
                stage.unpacks.push_back({data, runs, place, {}, count});
              }
            }
          }
        }
      }
      add_stage(stages, std::move(stage));
    }
  }
  return stages;
}

std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span) {
  if (span == NcclSpan::row) return topology.row(me / topology.inner);
  if (span == NcclSpan::column) return topology.column(me % topology.inner);
  std::vector<int> members;
  for (int piece = 0; piece < topology.ranks(); ++piece) members.push_back(topology.rank_of_piece(piece));
  return members;
}

}  // namespace ranvier::collectives
