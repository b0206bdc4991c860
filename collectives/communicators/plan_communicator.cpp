#include "collectives/communicators/plan_communicator.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::collectives {

/// Takes consecutive indices, so the rest before a wrap-around may be skipped.
///
/// None of them is in flight on any rank. With S staging buffers, a rank that starts operation j has finished j - S. An
/// operation with elements finishes only after all ranks have started it, so all have started j - S and finished j -
/// 2S. Hence fewer than 2S consecutive operations use indices. The limit below allows for one more, and for skipped
/// indices.
std::uint32_t PlanCommunicator::take_indices(std::size_t count, const std::string& what) {
  const std::size_t most = options_.indices / (2 * options_.staging.size() + 2);
  expect(count <= most,
         "{}: too many chunks: {}; {} message tags allow {} with {} operations in flight; use larger chunks", what,
         count, options_.indices, most, options_.staging.size());
  if (options_.indices - used_indices_ < count) used_indices_ = 0;
  const std::uint32_t first = options_.first_index + used_indices_;
  used_indices_ += static_cast<std::uint32_t>(count);
  return first;
}

std::size_t PlanCommunicator::staging_bytes(const Team& team, int me, const PlanChoice& choice,
                                            std::span<const OperationShape> shapes) {
  const int ranks = team.topology.ranks();
  std::map<std::tuple<Collective, runtime::DType, std::size_t, std::size_t, int>, std::size_t> known;
  const auto bytes_of_part = [&](const OperationShape& shape, std::size_t elements, std::size_t run, int chunks) {
    const auto [found, is_new] = known.try_emplace({shape.collective, shape.dtype, elements, run, chunks}, 0);
    if (!is_new) return found->second;
    const auto schedules = std::make_shared<const std::vector<RankSchedule>>(
        choice.algorithm_of(shape.collective).schedules(team.topology, elements, chunks, me));
    found->second =
        Executor::staging_bytes({.parts = {{nullptr, schedules, run, run == 0 ? 0 : run + 1}},  // any gap
                                 .dtype = shape.dtype,
                                 .depth = choice.depth});
    return found->second;
  };
  std::size_t most = 0;
  for (const OperationShape& shape : shapes) {
    if (ranks == 1) continue;
    const int chunks = choice.chunks(ranks, shape.parts, shape.dtype);
    std::size_t bytes = 0;
    for (std::size_t part = 0; part < shape.parts.size(); ++part) {
      const std::size_t run = shape.runs.empty() ? 0 : shape.runs.at(part);
      if (shape.collective == Collective::all_gather && run == 0) continue;  // received in place
      bytes += bytes_of_part(shape, shape.parts[part], run, chunks);
    }
    most = std::max(most, bytes);
  }
  return most;
}

PlanCommunicator::PlanCommunicator(runtime::EventLoop& loop, Executor& executor, Options options)
    : loop_(loop), executor_(executor), options_(std::move(options)) {
  const Team& own = options_.team;
  const auto ranks = static_cast<std::size_t>(own.topology.ranks());
  expect(own.members.size() == ranks && options_.ranks.size() == ranks,
         "a team of {} ranks has {} members and {} MPI ranks", ranks, own.members.size(), options_.ranks.size());
  expect(options_.me >= 0 && static_cast<std::size_t>(options_.me) < ranks, "member is out of range: {} of {}",
         options_.me, ranks);
  expect(ranks == 1 || !options_.staging.empty(), "a communicator of {} ranks has no staging buffer", ranks);
  expect(options_.choice.depth > 0, "a collective needs at least one chunk in flight, not {}",
         options_.choice.depth);
}

void PlanCommunicator::run(Collective collective, std::span<const Operand> parts, runtime::DType dtype,
                           std::string what, runtime::Handler done) {
  auto operands = plans_.of(collective, parts, dtype, what);
  if (!operands) return loop_.post(std::move(done));
  operands->index = take_indices(operands->chunks(), what);
  staging_.when_free([this, waiting = std::move(*operands), what = std::move(what),
                      done = std::move(done)](const runtime::SlotPool::Slot& slot) mutable {  // runs once
    waiting.staging = slot.data();
    executor_.run(std::move(waiting), [this, slot, over = tracked(std::move(what), loop_.now(), std::move(done))] {
      slot.release();
      staging_.serve();
      over();
    });
  });
}

std::optional<Executor::Operands> PlanOperands::of(Collective collective,
                                                   std::span<const Communicator::Operand> parts,
                                                   runtime::DType dtype, std::string_view what) {
  const int ranks = options_->team.topology.ranks();
  std::vector<std::size_t> elements;
  for (const Communicator::Operand& part : parts) {
    expect(part.elements % static_cast<std::size_t>(ranks) == 0, "{}: {} elements are not divisible by {} ranks",
           what, part.elements, ranks);
    elements.push_back(part.elements);
  }
  const auto sum = std::accumulate(elements.begin(), elements.end(), std::size_t{0});
  if (ranks == 1 || sum == 0) return std::nullopt;

  const int chunks = options_->choice.chunks(ranks, elements, dtype);
  Executor::Operands operands{
      .members = options_->ranks, .me = options_->me, .dtype = dtype, .depth = options_->choice.depth};
  for (const Communicator::Operand& part : parts) {
    if (part.elements == 0) continue;
    RankSchedules& schedules = schedules_[{collective, part.elements, chunks}];
    if (!schedules) {
      schedules = std::make_shared<const std::vector<RankSchedule>>(
          options_->choice.algorithm_of(collective)
              .schedules(options_->team.topology, part.elements, chunks, options_->me));
    }
    operands.parts.push_back({part.data, schedules, part.run, part.stride});
  }
  const std::size_t bytes = Executor::staging_bytes(operands);
  expect(bytes <= options_->staging_bytes, "{}: {} of {} elements needs {} bytes of staging, but {} were planned",
         what, to_string(collective), sum, bytes, options_->staging_bytes);
  return operands;
}

}  // namespace ranvier::collectives
