// What the order of sums over a column's rows follows from beside the flags, as a checkpoint keeps it: where the rows
// lie, and what auto has chosen there. Pure; any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct SavedColumn {
  std::vector<int> nodes;  ///< by row, counted from 0 in the order in which they come
  int group_size = 1;
  std::string sharding;
  actors::KeptAlgorithms algorithms;
  bool nccl = false;  ///< which chooses by itself

  friend bool operator==(const SavedColumn&, const SavedColumn&) = default;
};

/// Of a run. `choices`: those of its column.
[[nodiscard]] SavedColumn saved_column(const actors::TrainerOptions& trainer, const actors::PlanChoices& choices,
                                       bool nccl);

[[nodiscard]] boost::json::object to_json(const SavedColumn& column);
/// None where it is not there, or of another version of the program, with algorithms that this one does not have.
[[nodiscard]] std::optional<SavedColumn> column_of_json(const boost::json::value* json);

/// What it means for the bits of a training whose runs had `before` that a run would have `now` of itself, where
/// `flags` say auto.
struct ColumnChange {
  bool keeps = false;  ///< the algorithms of before are to be taken
  std::string line;    ///< for people; empty: nothing differs, or flags say it
};
[[nodiscard]] ColumnChange column_change(const SavedColumn& before, const SavedColumn& now,
                                         const actors::AlgorithmNames& flags);

}  // namespace ranvier::apps
