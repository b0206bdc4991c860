// Proves a plan by running its steps on sets of contributions instead of numbers. The buffer is split at every bound of
// the plan into *cells*, whose elements are always moved together. So the cost depends on pieces, not elements.
//
// Faults: a contribution missing or counted twice, a read of a range written in the same step, a send without a
// matching receive in the same step, a deadlock. The check throws ErrorCode::internal that names rank, step and range
// of the first one. `chunks` and `chunk` restrict it to that chunk of every piece; other elements must not change.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/plan.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::collectives {

/// Number of times that each rank's value is part of a sum; one entry per rank.
using Contributions = std::vector<std::uint32_t>;

inline std::string to_string(const Range& range) {
  return fmt::format("[{}, {})", range.begin, range.begin + range.count);
}

inline const char* to_string(Action action) {
  return runtime::enum_name<Action::receive_add>(action, {"send to", "receive from", "receive and add from"});
}

class Propagation {
 public:
  /// `bounds`: additional bounds of cells, for the ranges that check_result() checks. `moves`: values may move to other
  /// elements.
  Propagation(const Plan& plan, std::vector<std::size_t> bounds, bool moves = false)
      : plan_(plan),
        count_(static_cast<int>(plan.ranks.size())),
        moves_(moves),
        cuts_(std::move(bounds)),
        ranks_(count_) {
    check_pieces();
    check_form();
    cuts_.insert(cuts_.end(), {0, plan.elements});
    for (const auto& steps : plan.ranks) {
      for (const Step& step : steps) {
        for (const auto& [action, peer, range] : step)
          cuts_.insert(cuts_.end(), {range.begin, range.begin + range.count});
      }
    }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    for (int rank = 0; rank < count_; ++rank) ranks_[rank].cells.assign(cuts_.size() - 1, own(rank));
  }

  /// Runs all steps. Each rank runs one step at a time; a send waits for its receive, like MPI's long messages.
  void run() {
    for (int rank = 0; rank < count_; ++rank) advance(rank);
    for (int rank = 0; rank < count_; ++rank) {
      if (ranks_[rank].unmatched == 0) continue;
      for (const auto& [pair, queue] : pairs_) {
        if (pair.first == rank && !queue.sends.empty()) blame(queue.sends.front(), "never completes");
        if (pair.second == rank && !queue.receives.empty()) blame(queue.receives.front(), "never completes");
      }
    }
  }

  /// Throws unless every element of `range` on `rank` has exactly one contribution of each rank in `wanted`.
  void check_result(int rank, const Range& range, const std::vector<int>& wanted) const {
    Contributions expected(count_, 0);
    for (const int from : wanted) expected[from] = 1;
    for (std::size_t cell = cell_at(range.begin); cell < cell_at(range.begin + range.count); ++cell) {
      const Contributions& found = ranks_[rank].cells[cell];
      for (int from = 0; from < count_; ++from) {
        if (found[from] == expected[from]) continue;
        fail(ErrorCode::internal, "{}: rank {} ends with {} contributions of rank {} in elements {} instead of {}",
             plan_.name, rank, found[from], from, to_string({cuts_[cell], cuts_[cell + 1] - cuts_[cell]}),
             expected[from]);
      }
    }
  }

  [[nodiscard]] int ranks() const { return count_; }

 private:
  struct Posted {
    int rank = 0;
    std::size_t step = 0;
    const Operation* operation = nullptr;
    std::vector<Contributions> payload;  ///< the sender's cells; empty for a receive
  };
  struct Pair {
    std::deque<Posted> sends;
    std::deque<Posted> receives;
  };
  struct Rank {
    std::vector<Contributions> cells;
    std::size_t next_step = 0;
    std::size_t unmatched = 0;  ///< unmatched operations of the current step
  };

  [[noreturn]] void blame(const Posted& at, const std::string& what) const {
    const auto& [action, peer, range] = *at.operation;
    fail(ErrorCode::internal, "{}: rank {}, step {}: {} rank {} of elements {} {}", plan_.name, at.rank, at.step,
         to_string(action), peer, to_string(range), what);
  }

  [[nodiscard]] Contributions own(int rank) const {
    Contributions contributions(count_, 0);
    contributions[rank] = 1;
    return contributions;
  }

  [[nodiscard]] std::size_t cell_at(std::size_t element) const {
    return std::lower_bound(cuts_.begin(), cuts_.end(), element) - cuts_.begin();
  }

  /// Checks that each piece has one owner.
  void check_pieces() const {
    if (plan_.pieces.empty()) return;
    std::vector<int> sorted = plan_.pieces;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> all(count_);
    std::iota(all.begin(), all.end(), 0);
    expect(sorted == all, "{}: its {} ranks do not have one piece each", plan_.name, count_);
  }

  /// Checks that peers and ranges exist, and that a step does not write a range that it also reads or writes elsewhere.
  void check_form() const {
    for (int rank = 0; rank < count_; ++rank) {
      for (std::size_t index = 0; index < plan_.ranks[rank].size(); ++index) {
        const Step& step = plan_.ranks[rank][index];
        for (std::size_t i = 0; i < step.size(); ++i) {
          const Posted here{rank, index, &step[i], {}};
          const Range& range = step[i].range;
          if (step[i].peer < 0 || step[i].peer >= count_) blame(here, "has an unknown rank");
          if (step[i].peer == rank) blame(here, "has the rank itself as peer");
          if (range.count > plan_.elements || range.begin > plan_.elements - range.count) {
            blame(here, fmt::format("is outside the buffer of {}", plan_.elements));
          }
          for (std::size_t j = 0; j < i; ++j) {
            const bool both_read = step[i].action == Action::send && step[j].action == Action::send;
            if (!both_read && range.overlaps(step[j].range)) {
              blame(here, fmt::format("conflicts with {} rank {} of {}", to_string(step[j].action), step[j].peer,
                                      to_string(step[j].range)));
            }
          }
        }
      }
    }
  }

  /// Advances rank `first`, and every rank that this unblocks, as far as possible.
  void advance(int first) {
    std::deque<int> ready = {first};
    while (!ready.empty()) {
      const int rank = ready.front();
      ready.pop_front();
      Rank& state = ranks_[rank];
      const auto& steps = plan_.ranks[rank];
      while (state.next_step < steps.size() && steps[state.next_step].empty()) ++state.next_step;
      if (state.next_step == steps.size()) continue;
      const std::size_t index = state.next_step++;
      state.unmatched = steps[index].size();
      for (const Operation& operation : steps[index]) {
        if (operation.action == Action::send) {
          const auto begin = state.cells.begin();
          const Range& range = operation.range;
          pairs_[{rank, operation.peer}].sends.push_back(
              {rank,
               index,
               &operation,
               {begin + cell_at(range.begin), begin + cell_at(range.begin + range.count)}});
        } else {
          pairs_[{operation.peer, rank}].receives.push_back({rank, index, &operation, {}});
        }
      }
      for (const Operation& operation : steps[index]) {
        const auto pair =
            operation.action == Action::send ? std::pair(rank, operation.peer) : std::pair(operation.peer, rank);
        match(pairs_[pair], ready);
      }
    }
  }

  void match(Pair& pair, std::deque<int>& ready) {
    while (!pair.sends.empty() && !pair.receives.empty()) {
      const Posted send = std::move(pair.sends.front());
      const Posted receive = std::move(pair.receives.front());
      pair.sends.pop_front();
      pair.receives.pop_front();
      deliver(send, receive);
      for (const int rank : {send.rank, receive.rank}) {
        if (--ranks_[rank].unmatched == 0) ready.push_back(rank);
      }
    }
  }

  void deliver(const Posted& send, const Posted& receive) {
    const Range& from = send.operation->range;
    const Range& to = receive.operation->range;
    if (moves_ ? from.count != to.count : from != to)
      blame(receive, fmt::format("matches a send of elements {} in step {}", to_string(from), send.step));
    // Both ends then see the same ranges in a step, so the ranges between two ranks can be one message.
    if (send.step != receive.step) blame(receive, fmt::format("matches a send of step {}", send.step));
    const std::size_t first = cell_at(to.begin);
    for (std::size_t i = 0; i < send.payload.size(); ++i) {
      Contributions& target = ranks_[receive.rank].cells[first + i];
      if (receive.operation->action == Action::receive) {
        target = send.payload[i];
      } else {
        for (int rank = 0; rank < count_; ++rank) target[rank] += send.payload[i][rank];
      }
    }
  }

  const Plan& plan_;
  int count_;
  bool moves_;
  std::vector<std::size_t> cuts_;  ///< cell i is [cuts_[i], cuts_[i + 1])
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, Pair> pairs_;  ///< by sender and receiver
};

/// Runs the plan. Then calls check_slice(propagation, rank, piece, slice) for slice `chunk` of each piece, and checks
/// that the elements outside of the slices are unchanged.
template <typename CheckSlice>
void check_slices(const Plan& plan, int pieces, int chunks, int chunk, CheckSlice check_slice) {
  std::vector<Range> slices, others;
  std::vector<std::size_t> bounds;
  for (int piece = 0; piece < pieces; ++piece) {
    const Range whole = chunk_of_piece(plan.elements, pieces, piece, 1, 0);
    const Range slice = chunk_of_piece(plan.elements, pieces, piece, chunks, chunk);
    const std::size_t slice_end = slice.begin + slice.count;
    slices.push_back(slice);
    others.push_back({whole.begin, slice.begin - whole.begin});
    others.push_back({slice_end, whole.begin + whole.count - slice_end});
    bounds.insert(bounds.end(), {whole.begin, slice.begin, slice_end});
  }
  Propagation propagation(plan, bounds);
  propagation.run();
  for (int rank = 0; rank < propagation.ranks(); ++rank) {
    for (int piece = 0; piece < pieces; ++piece) check_slice(propagation, rank, piece, slices[piece]);
    for (const Range& other : others) propagation.check_result(rank, other, {rank});
  }
}

inline std::vector<int> all_ranks(const Plan& plan) {
  std::vector<int> ranks(plan.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline void check_all_reduce(const Plan& plan, int chunks = 1, int chunk = 0) {
  const auto all = all_ranks(plan);
  // Without chunks, an all-reduce has no pieces, and the number of elements need not be divisible.
  const int pieces = chunks == 1 ? 1 : static_cast<int>(all.size());
  check_slices(plan, pieces, chunks, chunk, [&](const Propagation& propagation, int rank, int, const Range& slice) {
    propagation.check_result(rank, slice, all);
  });
}

inline void check_reduce_scatter(const Plan& plan, int chunks = 1, int chunk = 0) {
  const auto all = all_ranks(plan);
  check_slices(plan, static_cast<int>(all.size()), chunks, chunk,
               [&](const Propagation& propagation, int rank, int piece, const Range& slice) {
                 if (piece == plan.piece(rank)) propagation.check_result(rank, slice, all);
               });
}

inline void check_all_gather(const Plan& plan, int chunks = 1, int chunk = 0) {
  const auto all = all_ranks(plan);
  check_slices(plan, static_cast<int>(all.size()), chunks, chunk,
               [&](const Propagation& propagation, int rank, int piece, const Range& slice) {
                 const auto owner = std::find_if(all.begin(), all.end(),
                                                 [&](int candidate) { return plan.piece(candidate) == piece; });
                 propagation.check_result(rank, slice, {*owner});
               });
}

/// Ranges of the sends are checked apart from contributions, which do not tell a rank's elements apart.
inline void check_all_to_all(const Plan& plan, int chunks = 1, int chunk = 0) {
  const auto ranks = static_cast<int>(plan.ranks.size());
  const std::size_t half = plan.elements / 2;
  std::vector<std::size_t> bounds;
  for (int piece = 0; piece < ranks; ++piece) {
    const Range slice = chunk_of_piece(half, ranks, piece, chunks, chunk);
    for (const std::size_t begin : {slice.begin, half + slice.begin})
      bounds.insert(bounds.end(), {begin, begin + slice.count});
  }
  Propagation propagation(plan, bounds, true);
  propagation.run();
  for (int rank = 0; rank < ranks; ++rank) {
    propagation.check_result(rank, {0, half}, {rank});
    std::size_t kept_from = half;
    for (int piece = 0; piece < ranks; ++piece) {
      const Range slice = chunk_of_piece(half, ranks, piece, chunks, chunk);
      const auto all = all_ranks(plan);
      const auto owner = std::ranges::find_if(all, [&](int candidate) { return plan.piece(candidate) == piece; });
      propagation.check_result(rank, {kept_from, half + slice.begin - kept_from}, {rank});
      propagation.check_result(rank, {half + slice.begin, slice.count}, {*owner});
      kept_from = half + slice.begin + slice.count;
    }
    propagation.check_result(rank, {kept_from, plan.elements - kept_from}, {rank});
    for (const Step& step : plan.ranks[static_cast<std::size_t>(rank)]) {
      for (const auto& [action, peer, range] : step) {
        expect(action != Action::send || range == chunk_of_piece(half, ranks, plan.piece(peer), chunks, chunk),
               "{}: rank {} sends elements {} to rank {}", plan.name, rank, to_string(range), peer);
      }
    }
  }
}

inline void check(Collective collective, const Plan& plan, int chunks = 1, int chunk = 0) {
  switch (collective) {
    case Collective::all_gather:
      return check_all_gather(plan, chunks, chunk);
    case Collective::reduce_scatter:
      return check_reduce_scatter(plan, chunks, chunk);
    case Collective::all_reduce:
      return check_all_reduce(plan, chunks, chunk);
    case Collective::all_to_all:
      return check_all_to_all(plan, chunks, chunk);
  }
}

}  // namespace ranvier::collectives
