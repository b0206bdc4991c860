// --metrics: the JSON lines of all runs that wrote one file. A line {"run": {…}} stands before those of a run, but of
// the first one in a file that takes no checkpoints; a run that goes on from a checkpoint does so where that was taken,
// and the lines of steps that are done again are gone. Rank 0.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/record_file.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::apps {

/// A training, and where a run of it begins.
struct RunOrigin {
  std::string training;      ///< the same name in all runs of the training; empty: no other run will resume it
  std::int64_t step = 0;     ///< steps done; 0 as well if it begins again
  std::string checkpoint;    ///< the checkpoint that it resumes from; empty: it begins
  std::string init_from;     ///< --init-from of the first run, for all of its runs; empty: there was none
  std::string init_content;  ///< content_of_weights() of init_from; empty: unknown
};

/// Opens --metrics after the lines of earlier runs, or from scratch with --overwrite if the run does not resume. Throws
/// ErrorCode::usage if the file has other content, ErrorCode::io if it cannot be opened. Null without --metrics.
[[nodiscard]] std::unique_ptr<runtime::RecordFile> open_metrics(const TrainOptions& options,
                                                                const RunOrigin& place = {});

/// Removes what runs of the training wrote of later steps, and lines that were not written whole: as a new file that
/// takes the old one's name, or not at all. Returns how many lines went. Throws ErrorCode::io.
std::size_t drop_later_metrics(const std::string& path, const std::string& training, std::int64_t step);

}  // namespace ranvier::apps
