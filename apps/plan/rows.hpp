// The lines of a ranking of plans: candidates that differ in one flag and take the same time share a line (PlanRow).
// Pure functions, callable from any thread.
//
//   2 × 32, zero1, 4 per microbatch, 1f1b
//   same time with --recompute off|auto
#pragma once

#include "apps/plan/search.hpp"
#include "apps/plan/search_space.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// One line of a ranking: candidates that count as one plan.
struct PlanRow {
  /// Indices into the found candidates: the line's representative, then the others, fastest first.
  std::vector<std::size_t> members;
  double seconds = 0;  ///< step time of the fastest
};

/// Members of a line take at most this fraction longer per step than its fastest member.
inline constexpr double row_tolerance = 0.005;

/// Returns the first `most` lines, fastest first. `found` indexes `candidates`, fastest first.
///
/// Two candidates share a line if they differ in one flag, directly or through other members of the line. All are
/// within row_tolerance of the line's fastest. Different grids or shardings never share a line. The three flags of
/// algorithms count as one. The member with the fewest flags that are not defaults of ranvier-train represents the
/// line; among several such members, the fastest.
[[nodiscard]] std::vector<PlanRow> rows_of(std::span<const Candidate> candidates,
                                           std::span<const SearchResult::Found> found, std::size_t most);

/// Step time in seconds above which a candidate cannot join the first `most` lines; infinity with fewer lines.
[[nodiscard]] double rows_limit(std::span<const Candidate> candidates, std::span<const SearchResult::Found> found,
                                std::size_t most);

/// Flags in which the alternatives differ, with all values, starting with the value of the first alternative:
/// "--recompute off|auto, --policy 1f1b|gpipe"; empty for one candidate.
[[nodiscard]] std::string switches_text(std::span<const Candidate> alternatives);

}  // namespace ranvier::apps
