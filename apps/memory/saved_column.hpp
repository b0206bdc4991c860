// Node layout and algorithms of a column, as saved in a checkpoint. With the flags they fix the order of sums over
// rows, and so the bits of the results. Pure functions, callable from any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct SavedColumn {
  std::vector<int> nodes;  ///< node of each row, numbered from 0 by first appearance
  int group_size = 1;
  std::string sharding;
  actors::KeptAlgorithms algorithms;
  bool nccl = false;  ///< NCCL chooses its algorithms itself

  friend bool operator==(const SavedColumn&, const SavedColumn&) = default;
};

/// Names of chosen algorithms.
[[nodiscard]] actors::KeptAlgorithms names_of(const actors::PlanChoices& choices);

/// Column of a run. `choices`: algorithms of its column.
[[nodiscard]] SavedColumn saved_column(const actors::TrainerOptions& trainer, const actors::PlanChoices& choices,
                                       bool nccl);

[[nodiscard]] boost::json::object to_json(const SavedColumn& column);
/// nullopt if it is missing or malformed, or names algorithms that this version does not have.
[[nodiscard]] std::optional<SavedColumn> column_of_json(const boost::json::value* json);

/// Effect of resuming a run that had `before` if this run would choose `now`. Algorithms count only if their flag is
/// auto.
struct ColumnChange {
  bool keeps = false;  ///< use the algorithms of `before`
  std::string line;    ///< message; empty if nothing differs, or only flags do
};
[[nodiscard]] ColumnChange column_change(const SavedColumn& before, const SavedColumn& now,
                                         const actors::AlgorithmNames& flags);

}  // namespace ranvier::apps
