#include "collectives/communicators/mpi_communicator.hpp"

#include "collectives/plans/algorithms.hpp"
#include "runtime/base/error.hpp"

#include <array>
#include <utility>

namespace ranvier::collectives {

namespace {

/// Ranks by piece: MPI assigns piece p to rank p of its communicator.
std::vector<int> ranks_by_piece(const Topology& topology, const std::vector<int>& ranks) {
  std::vector<int> sorted;
  for (int piece = 0; piece < topology.ranks(); ++piece) sorted.push_back(ranks.at(topology.rank_of_piece(piece)));
  return sorted;
}

}  // namespace

MpiCommunicator::MpiCommunicator(runtime::MpiSession& session, runtime::EventLoop& loop, Team team, int me,
                                 const std::vector<int>& ranks)
    : loop_(&loop), team_(std::move(team)), me_(me), mpi_(session, loop, ranks_by_piece(team_.topology, ranks)) {}

void MpiCommunicator::run(Collective collective, std::span<const Operand> parts, runtime::DType dtype,
                          std::string what, runtime::Handler done) {
  expect(collective != Collective::all_to_all, "{}: MPI runs no all-to-all of a buffer's halves", what);
  if (collective != Collective::all_gather && !runtime::MpiCollectives::adds(dtype)) {
    fail(ErrorCode::usage, "{}: MPI cannot add {}; use fp32, or an algorithm other than mpi", what,
         to_string(dtype));
  }
  const int ranks = team_.topology.ranks();
  std::size_t left = 0;
  for (const Operand& part : parts) {
    expect(part.elements % ranks == 0, "{}: {} elements are not divisible by {} ranks", what, part.elements, ranks);
    expect(part.run == part.stride,
           "{}: a part has runs of {} elements, stride {}; MPI collectives need contiguous parts", what, part.run,
           part.stride);
    if (part.elements > 0) ++left;
  }
  if (ranks == 1 || left == 0) return loop_->post(std::move(done));

  const runtime::Handler complete_one =
      runtime::last_of(left, tracked(std::move(what), loop_->now(), std::move(done)));
  constexpr std::array operations = {&runtime::MpiCollectives::all_gather, &runtime::MpiCollectives::reduce_scatter,
                                     &runtime::MpiCollectives::all_reduce};
  const auto start = operations[static_cast<std::size_t>(collective)];
  for (const Operand& part : parts)
    if (part.elements > 0) (mpi_.*start)(part.data, part.elements, dtype, complete_one);
}

}  // namespace ranvier::collectives
