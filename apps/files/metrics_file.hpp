// --metrics: JSON lines of one or more runs in one file. A line {"run": {…}} begins each run, except the first one
// without checkpoints. A resumed run continues after its checkpoint's step and removes lines of later steps. Rank 0.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/files/record_file.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace ranvier::apps {

/// Identity of a training job and the step at which this run starts.
struct RunOrigin {
  std::string training;      ///< name shared by all runs of the job; empty: no run will resume it
  std::int64_t step = 0;     ///< completed steps; 0: from scratch
  std::string checkpoint;    ///< path of the checkpoint to resume from; empty: from scratch
  std::string init_from;     ///< --init-from of the job's first run; empty: none
  std::string init_content;  ///< content_of_weights() of init_from; empty: unknown
};

/// Opens --metrics after the lines of earlier runs, or from scratch with --overwrite if the run does not resume. Throws
/// ErrorCode::usage if the file has other content, ErrorCode::io if it cannot be opened. Null without --metrics.
[[nodiscard]] std::unique_ptr<runtime::RecordFile> open_metrics(const TrainOptions& options,
                                                                const RunOrigin& place = {});

/// Removes this job's lines of steps after `step`, and incomplete lines. Replaces the file atomically. Returns the
/// number of removed lines. Throws ErrorCode::io.
std::size_t drop_later_metrics(const std::string& path, const std::string& training, std::int64_t step);

}  // namespace ranvier::apps
