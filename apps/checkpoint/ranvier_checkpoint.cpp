// ranvier-checkpoint: inspects, checks, compares, exports and prunes checkpoints.
#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/program/print_error.hpp"

#include <fmt/core.h>

int main(int argc, char** argv) {
  using namespace ranvier::apps;
  return run_program("ranvier-checkpoint", argc, argv, parse_checkpoint_options, checkpoint_manual,
                     [](const CheckpointToolOptions& options) {
                       const CheckpointToolResult result = options.run(options);
                       fmt::print("{}", result.text);
                       return result.status;
                     });
}
