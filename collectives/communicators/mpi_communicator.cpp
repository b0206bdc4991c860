#include "collectives/communicators/mpi_communicator.hpp"

#include "collectives/plans/algorithms.hpp"
#include "runtime/base/error.hpp"

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
  for (const Operand& part : parts) {
    std::byte* const data = part.data;
    const std::size_t elements = part.elements;
    if (elements == 0) continue;
    switch (collective) {
      case Collective::all_gather:
        mpi_.all_gather(data, elements, dtype, complete_one);
        break;
      case Collective::reduce_scatter:
        mpi_.reduce_scatter(data, elements, dtype, complete_one);
        break;
      case Collective::all_reduce:
        mpi_.all_reduce(data, elements, dtype, complete_one);
        break;
    }
  }
}

}  // namespace ranvier::collectives
