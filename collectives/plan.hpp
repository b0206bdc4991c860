// A collective operation as data: what each rank sends, receives and adds, step by step. No MPI, no device,
// no clock; any thread. check_*() prove a plan, an Executor (executor.hpp) runs it.
//
// Words used throughout: a *buffer* of `elements` is what the operation works on, each rank has one. A
// *piece* is the part that one rank owns (piece p of P: [p·E/P, (p+1)·E/P), E divisible by P; rank r owns piece
// r unless the plan says otherwise). A *chunk* slices every piece, so that an operation can go through the links
// in several plans at a time while each element keeps its owner, and with it the rank that its sum starts from:
// sums are the same for any chunks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ranvier::collectives {

struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;

  [[nodiscard]] bool contains(const Range& part) const noexcept {
    return begin <= part.begin && part.begin + part.count <= begin + count;
  }
  friend bool operator==(const Range&, const Range&) = default;
};

enum class Action {
  send,         ///< the range as it is before this step
  receive,      ///< overwrite the range
  receive_add,  ///< add what arrives to the range
};

struct Operation {
  Action action = Action::send;
  int peer = 0;  ///< index in the plan, not an MPI rank
  Range range;
};

/// The operations of a step run at the same time; a rank's next step begins when all of them are done.
using Step = std::vector<Operation>;

/// Where a function that makes plans asks whose steps are wanted: all. Those of one rank take P times less to make, and
/// the others of that plan have none; only a plan of all can be checked.
inline constexpr int every_rank = -1;

struct Plan {
  std::string name;
  std::size_t elements = 0;
  std::vector<std::vector<Step>> ranks;  ///< [rank][step]
  std::vector<int> pieces = {};          ///< [rank] the piece that it owns; empty: rank r owns piece r

  [[nodiscard]] int piece(int rank) const { return pieces.empty() ? rank : pieces.at(rank); }
};

/// Piece `piece` of `pieces`, and chunk `chunk` of `chunks` inside it. `elements` divides by `pieces`.
[[nodiscard]] Range chunk_of_piece(std::size_t elements, int pieces, int piece, int chunks, int chunk);

// What a plan must do, proved by propagation of contributions: each throws ErrorCode::internal that names
// rank, step and range of the first fault (a contribution missing or counted twice, a read of a range that
// the same step writes, a send that meets no receive of the same range in the step of the same number, a rank that
// waits for ever).
// `chunks` and `chunk` restrict the claim to that slice of every piece; other elements must stay untouched.
void check_all_reduce(const Plan& plan, int chunks = 1, int chunk = 0);
void check_reduce_scatter(const Plan& plan, int chunks = 1, int chunk = 0);
void check_all_gather(const Plan& plan, int chunks = 1, int chunk = 0);

}  // namespace ranvier::collectives
