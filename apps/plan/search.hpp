// Branch and bound: which of many candidates are fastest, where a simulation tells how long one takes, a bound tells
// less than that at once, and planning one in between improves the bound. Knows nothing of what candidates are.
#pragma once

#include "apps/plan/bound.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::apps {

/// What is asked about candidate i.
struct SearchSteps {
  std::function<Bound(std::size_t)> bound;                ///< at once
  std::function<std::optional<Bound>(std::size_t)> plan;  ///< none: it is left out
  /// Seconds of a step; none: it is left out after all. Several at a time, on threads of the search.
  std::function<std::optional<double>(std::size_t)> simulate;
};

/// How far a search is.
struct SearchProgress {
  std::size_t candidates = 0;
  std::size_t planned = 0;
  std::size_t simulated = 0;
  std::size_t simulating = 0;  ///< now
};

struct SearchResult {
  struct Found {
    std::size_t candidate = 0;
    double seconds = 0;
  };
  std::vector<Found> best;  ///< the fastest first; of equal ones the first candidate
  std::size_t planned = 0;
  std::size_t simulated = 0;
  std::size_t cut = 0;             ///< not simulated, since their bounds are above the last of the best
  std::size_t open = 0;            ///< not simulated, since there were simulations enough
  double min_open = 0;             ///< the least bound of those
  double largest_bound_share = 0;  ///< of a simulated time: not above 1
};

struct SearchLimits {
  std::size_t best = 10;  ///< number of candidates that are wanted, unless `limit` is set
  /// Seconds per step up to which candidates are wanted, from those simulated so far, fastest first. May rise and fall
  /// as more is known. Null: the time of the last of `best`.
  std::function<double(std::span<const SearchResult::Found>)> limit = {};
  std::size_t simulations = 0;  ///< at most; 0: as many as it takes
  int threads = 1;
  bool exhaustive = false;  ///< simulate everything that is not left out
  bool estimate = false;    ///< simulate nothing: what plans say that a step may well take stands for its time
  std::function<void(const SearchProgress&)> progress = {};  ///< called often, by the thread that searches
};

/// Candidates 0 … `count` - 1. The result does not depend on `threads`. With no limit on simulations the best are
/// those of an exhaustive search. Passes on what the steps throw.
[[nodiscard]] SearchResult search(std::size_t count, const SearchSteps& steps, const SearchLimits& limits);

}  // namespace ranvier::apps
