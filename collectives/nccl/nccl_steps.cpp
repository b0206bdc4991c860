#include "collectives/nccl/nccl_steps.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

namespace {

using Operand = Communicator::Operand;
using Kind = NcclCall::Kind;

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
    const std::size_t taken = Executor::staged_bytes(bytes);
    if (at == nullptr || taken > left) return nullptr;
    left -= taken;
    return std::exchange(at, at + taken);
  }
};

void check(const Operand& part, int ranks) {
  expect(part.elements % static_cast<std::size_t>(ranks) == 0, "{} elements are not divisible by {} ranks",
         part.elements, ranks);
  expect(part.run == 0 ? part.stride == 0 : part.stride >= part.run,
         "a part of a collective has invalid runs: {} elements, stride {}", part.run, part.stride);
}

/// Adds the calls of a collective on a range that `ranks` ranks shard evenly, in the order of NCCL ranks.
void append(NcclStep& step, Collective collective, const Operand& part, Range range, int ranks, int me,
            runtime::DType dtype, Room& room) {
  if (range.count == 0) return;
  std::vector<NcclCall>& calls = step.calls;
  const std::size_t width = size_of(dtype), owned = range.count / static_cast<std::size_t>(ranks);
  const runtime::StridedLayout runs{part.run, part.stride, range.begin};
  std::byte* const packed = range.count > runs.together(0) ? room.take(range.count * width) : nullptr;
  if (packed != nullptr) {
    // Offset of this rank's shard: its data before a gather, or after a reduce-scatter.
    const std::size_t before = static_cast<std::size_t>(me) * owned;
    const runtime::StridedLayout my_runs{part.run, part.stride, range.begin + before};
    const bool gathered = collective == Collective::all_gather,
               scattered = collective == Collective::reduce_scatter;
    step.before.push_back({packed + (gathered ? before * width : 0),
                           {},
                           part.data,
                           gathered ? my_runs : runs,
                           gathered ? owned : range.count});
    append(step, collective, {packed, range.count}, {0, range.count}, ranks, me, dtype, room);
    step.after.push_back({part.data,
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
  if (is_contiguous(part)) {
    std::byte* const whole = part.data + range.begin * width;
    std::byte* const mine = whole + static_cast<std::size_t>(me) * owned * width;
    calls.push_back(
        {gathers ? Kind::all_gather : Kind::reduce_scatter, gathers ? mine : whole, gathers ? whole : mine, owned});
    return;
  }
  for (int owner = 0; owner < ranks; ++owner) {
    const Range of_owner{range.begin + static_cast<std::size_t>(owner) * owned, owned};
    for_each_stretch(part, of_owner, dtype, [&](std::byte* data, std::size_t count) {
      calls.push_back({gathers ? Kind::broadcast : Kind::reduce, data, data, count, owner});
    });
  }
}

void add_step(std::vector<NcclStep>& steps, NcclStep step) {
  if (!step.calls.empty()) steps.push_back(std::move(step));
}

}  // namespace

NcclMode nccl_mode(std::string_view algorithm) noexcept {
  if (algorithm == "auto") return NcclMode::own;
  return algorithm == "hierarchical" ? NcclMode::hierarchical : NcclMode::plan;
}

bool sums_follow_plans(const NcclModes& modes) noexcept {
  return modes[static_cast<std::size_t>(Collective::reduce_scatter)] == NcclMode::plan &&
         modes[static_cast<std::size_t>(Collective::all_reduce)] == NcclMode::plan;
}

std::vector<int> nccl_members(const Topology& topology, int me, NcclSpan span) {
  if (span == NcclSpan::row) return topology.row(me / topology.inner);
  if (span == NcclSpan::column) return topology.column(me % topology.inner);
  std::vector<int> members;
  for (int piece = 0; piece < topology.ranks(); ++piece) members.push_back(topology.rank_of_piece(piece));
  return members;
}

std::vector<NcclPart> nccl_parts(NcclMode mode, Collective collective, const Topology& topology) {
  constexpr NcclPart scatter{Collective::reduce_scatter, NcclSpan::row};
  constexpr NcclPart gather{Collective::all_gather, NcclSpan::row};
  const NcclPart across{collective, NcclSpan::column};
  if (mode == NcclMode::own || topology.inner == 1 || topology.outer == 1) return {{collective, NcclSpan::team}};
  if (collective == Collective::all_gather) return {across, gather};
  if (collective == Collective::reduce_scatter) return {scatter, across};
  return {scatter, across, gather};
}

std::vector<NcclStep> nccl_steps(NcclMode mode, Collective collective, const Topology& topology, int me,
                                 std::span<const Operand> parts, runtime::DType dtype, const NcclPacking& packing) {
  std::vector<NcclStep> steps;
  for (const auto& [of_span, span] : nccl_parts(mode, collective, topology)) {
    const std::vector<int> members = nccl_members(topology, me, span);
    const auto place = static_cast<int>(std::find(members.begin(), members.end(), me) - members.begin());
    NcclStep step{.span = span};
    Room room{span == NcclSpan::row ? packing.row : packing.others, packing.bytes};
    for (const Operand& part : parts) {
      check(part, topology.ranks());
      // The pieces of the ranks at one position of all rows form a contiguous range (topology.hpp). So do the gathered
      // pieces of a row.
      const std::size_t shared = part.elements / static_cast<std::size_t>(topology.inner);
      const Range range = span == NcclSpan::column
                              ? Range{static_cast<std::size_t>(me % topology.inner) * shared, shared}
                              : Range{0, part.elements};
      append(step, of_span, part, range, static_cast<int>(members.size()), place, dtype, room);
    }
    add_step(steps, std::move(step));
  }
  return steps;
}

std::vector<NcclStep> plan_steps(const Topology& topology, const Executor::Operands& operands) {
  operands.check();
  std::vector<NcclStep> steps;
  const std::size_t chunks = operands.chunks(), together = static_cast<std::size_t>(operands.depth);
  const std::size_t width = size_of(operands.dtype);
  for (std::size_t first = 0; first < chunks; first += together) {
    const std::size_t end = std::min(chunks, first + together);
    std::size_t max_steps = 0;
    for (std::size_t chunk = first; chunk < end; ++chunk) max_steps = std::max(max_steps, operands.steps(chunk));
    for (std::size_t number = 0; number < max_steps; ++number) {
      NcclStep step;
      std::byte* arrival = operands.staging;  // the stream adds earlier data here before it receives again
      for (std::size_t chunk = first; chunk < end; ++chunk) {
        for (const Executor::Operand& part : operands.parts) {
          const RankSchedule::Step* const of_plan = part.step(chunk, number);
          if (of_plan == nullptr) continue;
          for (const auto& [action, rank, range] : of_plan->operations) {
            if (range.count == 0) continue;
            const int peer = topology.piece(rank);
            const bool adds = action == Action::receive_add;
            const Executor::Extent extent = part.extent(range, width);
            const auto& [data, runs, count] = extent;
            const bool staged = adds || extent.packed();
            std::byte* const place = staged ? arrival : data;
            if (staged) arrival += Executor::staged_bytes(count * width);
            if (action == Action::send) {
              if (staged) step.before.push_back({place, {}, data, runs, count});
              step.calls.push_back({Kind::send, place, nullptr, count, peer});
            } else {
              step.calls.push_back({Kind::receive, nullptr, place, count, peer});
              if (staged) step.after.push_back({data, runs, place, {}, count, adds});
            }
          }
        }
      }
      add_step(steps, std::move(step));
    }
  }
  return steps;
}

}  // namespace ranvier::collectives
