#include "apps/checkpoint/checkpoint_tool.hpp"

#include "runtime/base/error.hpp"

namespace ranvier::apps {

CheckpointToolResult run_checkpoint_tool(const CheckpointToolOptions& options) {
  const std::string& path = options.paths.at(0);
  switch (options.command) {
    case CheckpointCommand::list:
      return {list_checkpoints(path)};
    case CheckpointCommand::show:
      return {show_checkpoint(path)};
    case CheckpointCommand::verify:
      return verify_checkpoints(path, options.threads);
    case CheckpointCommand::export_weights:
      return {export_weights(path, options)};
    case CheckpointCommand::diff:
      return compare_checkpoints(path, options.paths.at(1));
    case CheckpointCommand::prune:
      return {prune_checkpoints(path, options.keep, options.archive_every, options.dry_run)};
  }
  fail(ErrorCode::internal, "unknown command of ranvier-checkpoint");
}

}  // namespace ranvier::apps
