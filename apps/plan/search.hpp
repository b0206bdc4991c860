// Branch and bound over numbered candidates. A candidate has a cheap lower bound, a better one once it is planned, and
// an exact time once it is simulated. Independent of the kind of candidate.
#pragma once

#include "apps/plan/bound.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::apps {

/// Evaluation steps of candidate i.
struct SearchSteps {
  std::function<Bound(std::size_t)> bound;                ///< cheap bound
  std::function<std::optional<Bound>(std::size_t)> plan;  ///< better bound; none: the candidate is left out
  /// Step time in seconds; none: the candidate is left out. Several calls at a time, on threads of the search.
  std::function<std::optional<double>(std::size_t)> simulate;
};

/// Progress of a search.
struct SearchProgress {
  std::size_t candidates = 0;
  std::size_t planned = 0;
  std::size_t simulated = 0;
  std::size_t simulating = 0;  ///< simulations in progress
};

struct SearchResult {
  struct Found {
    std::size_t candidate = 0;
    double seconds = 0;
  };
  std::vector<Found> best;  ///< fastest first; ties by candidate number
  std::size_t planned = 0;
  std::size_t simulated = 0;
  std::size_t cut = 0;             ///< candidates pruned because their bounds exceed the limit
  std::size_t open = 0;            ///< candidates skipped because of `simulations`
  double min_open = 0;             ///< smallest bound of the skipped candidates
  double largest_bound_share = 0;  ///< largest ratio of bound and simulated time, at most 1
};

struct SearchLimits {
  std::size_t best = 10;  ///< number of candidates to find, unless `limit` is set
  /// Largest step time in seconds that still counts, given the simulated candidates, fastest first. It may rise and
  /// fall with further results. Null: the time of the last of `best`.
  std::function<double(std::span<const SearchResult::Found>)> limit = {};
  std::size_t simulations = 0;  ///< maximum number; 0: unlimited
  int threads = 1;
  bool exhaustive = false;                                   ///< simulate every candidate that is not left out
  bool estimate = false;                                     ///< use Bound::estimate in place of simulations
  std::function<void(const SearchProgress&)> progress = {};  ///< called often, by the searching thread
};

/// Searches candidates 0 … `count` - 1. The result does not depend on `threads`. Without a limit on simulations, it
/// finds the same best candidates as an exhaustive search. Rethrows exceptions of the steps.
[[nodiscard]] SearchResult search(std::size_t count, const SearchSteps& steps, const SearchLimits& limits);

}  // namespace ranvier::apps
