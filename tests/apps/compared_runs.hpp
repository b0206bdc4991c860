// Complete runs that must give the same bits.
#pragma once

#include "tests/apps/small_run.hpp"

namespace ranvier::tests {

struct TrainedRun {
  std::vector<std::string> losses;  ///< in the format of the metrics file, as the following ones
  std::vector<std::string> norms;
  std::string evaluation;  ///< after the last step; empty: none
  std::string weights;     ///< the file's content
  std::string output;
};

/// Runs of small_run() of the text, or of --data in their flags.
struct ComparedRuns : SmallText {
  std::string saved = file("saved"), disk = make_folder("disk");

  /// Saves to the folder `saved`, and to `metrics`.
  [[nodiscard]] TrainedRun train(int ranks, const Flags& more = {}) const {
    std::filesystem::remove(metrics);
    std::filesystem::remove_all(saved);
    const Outcome outcome =
        ends_well(ranks, join("--metrics " + metrics + " --save " + saved, more), std::chrono::seconds(120));
    const std::string last = lines_of(read_file(metrics)).back();
    const auto validation = last.find("\"validation_");
    return {metric(metrics, "loss"), metric(metrics, "grad_norm"),
            validation == std::string::npos ? "" : last.substr(validation), read_file(saved + "/model.safetensors"),
            outcome.output};
  }

  void check_same(const TrainedRun& expected, int ranks, const Flags& more) const {
    INFO(ranks << " ranks, " << more.line());
    const TrainedRun run = train(ranks, more);
    CHECK(run.losses == expected.losses);
    CHECK(run.norms == expected.norms);
    CHECK(run.evaluation == expected.evaluation);
    CHECK((run.weights == expected.weights));
  }

  struct Change {
    Flags more;
    int ranks = 0;  ///< 0: as many
  };
  /// Checks that a run gives the same bits with each of these changes, and leaves no file in `disk`. Returns its
  /// result.
  TrainedRun check_unchanged(int ranks, const Flags& flags, const std::vector<Change>& changes) const {
    TrainedRun expected = train(ranks, flags);
    for (const auto& [more, others] : changes) check_same(expected, others > 0 ? others : ranks, join(flags, more));
    CHECK(std::filesystem::is_empty(disk));
    return expected;
  }
};

}  // namespace ranvier::tests
