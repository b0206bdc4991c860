#include "apps/checkpoint/checkpoint_tool.hpp"

#include "apps/checkpoint/comparison.hpp"
#include "apps/checkpoint/inspection.hpp"
#include "apps/checkpoint/weight_export.hpp"
#include "runtime/base/error.hpp"

namespace ranvier::apps {

CheckpointToolResult run_checkpoint_tool(const CheckpointToolOptions& options) {
  const std::string& path = options.paths.at(0);
  switch (options.command) {
    case CheckpointCommand::list:
      return {list_checkpoints(path)};
    case CheckpointCommand::show:
      return {show_checkpoint(path)};
    case CheckpointCommand::verify: {
      Verification verification = verify_checkpoints(path, options.threads);
      return {std::move(verification.text), verification.fine ? 0 : exit_code(ErrorCode::data)};
    }
    case CheckpointCommand::export_weights:
      return {export_weights(path, {.folder = options.output,
                                    .file_bytes = options.file_bytes,
                                    .overwrite = options.overwrite,
                                    .merge = options.merge})};
    case CheckpointCommand::diff: {
      Comparison comparison = compare_checkpoints(path, options.paths.at(1));
      return {std::move(comparison.text), comparison.equal ? 0 : 1};
    }
    case CheckpointCommand::prune:
      return {prune_checkpoints(path, options.keep, options.archive_every, options.dry_run)};
  }
  fail(ErrorCode::internal, "unknown command of ranvier-checkpoint");
}

}  // namespace ranvier::apps
