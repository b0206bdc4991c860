// A collective operation as data: sends, receives and additions of each rank, step by step. No MPI, no device, no
// clock; any thread. An Executor (executor.hpp) runs it.
//
// Terms: the operation works on a *buffer* of `elements` per rank. A *piece* is the part that one rank owns (piece p
// of P: [p·E/P, (p+1)·E/P), E divisible by P; by default rank r owns piece r). A *chunk* slices every piece, so
// several plans can run at the same time while owners, and so the order of sums, stay the same.
#pragma once

#include "runtime/base/error.hpp"

#include <algorithm>
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
  [[nodiscard]] bool overlaps(const Range& other) const noexcept {
    return begin < other.begin + other.count && other.begin < begin + count && count > 0 && other.count > 0;
  }
  /// Elements of both.
  [[nodiscard]] Range common(const Range& other) const noexcept {
    const std::size_t from = std::max(begin, other.begin);
    const std::size_t to = std::min(begin + count, other.begin + other.count);
    return from < to ? Range{from, to - from} : Range{};
  }
  friend bool operator==(const Range&, const Range&) = default;
};

enum class Action {
  send,         ///< send the range as it is before this step
  receive,      ///< overwrite the range
  receive_add,  ///< add received data to the range
};

struct Operation {
  Action action = Action::send;
  int peer = 0;  ///< index in the plan, not an MPI rank
  Range range;

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Operations of a step run at the same time; the next step of a rank starts when all are done.
using Step = std::vector<Operation>;

/// Argument of functions that make plans: steps of all ranks. Steps of a single rank take 1/P of the time, but only a
/// complete plan can be checked.
inline constexpr int every_rank = -1;

struct Plan {
  std::string name;
  std::size_t elements = 0;
  std::vector<std::vector<Step>> ranks;  ///< [rank][step]
  std::vector<int> pieces = {};          ///< [rank] owned piece; empty: rank r owns piece r

  [[nodiscard]] int piece(int rank) const { return pieces.empty() ? rank : pieces.at(rank); }
};

/// Range of chunk `chunk` of `chunks` in piece `piece` of `pieces`, which must divide `elements`.
[[nodiscard]] inline Range chunk_of_piece(std::size_t elements, int pieces, int piece, int chunks, int chunk) {
  expect(pieces > 0 && 0 <= piece && piece < pieces, "piece is out of range: {} of {}", piece, pieces);
  expect(chunks > 0 && 0 <= chunk && chunk < chunks, "chunk is out of range: {} of {}", chunk, chunks);
  expect(elements % pieces == 0, "{} elements are not divisible by {} pieces", elements, pieces);
  const std::size_t length = elements / pieces;
  const std::size_t begin = length * chunk / chunks;
  const std::size_t end = length * (chunk + 1) / chunks;
  return {piece * length + begin, end - begin};
}

}  // namespace ranvier::collectives
