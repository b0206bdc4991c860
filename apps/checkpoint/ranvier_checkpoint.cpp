// ranvier-checkpoint: inspects, checks, compares, exports and prunes checkpoints.
#include "apps/checkpoint/checkpoint_options.hpp"
#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/program/print_error.hpp"
#include "runtime/base/error.hpp"

#include <fmt/core.h>

#include <cstdlib>

namespace {

constexpr const char* program = "ranvier-checkpoint";

}  // namespace

int main(int argc, char** argv) {
  using namespace ranvier;
  try {
    const apps::CheckpointToolOptions options = apps::parse_checkpoint_options(argc, argv);
    if (options.info.any()) {
      fmt::print("{}\n", apps::answer(options.info, apps::checkpoint_manual()));
      return EXIT_SUCCESS;
    }
    const apps::CheckpointToolResult result = apps::run_checkpoint_tool(options);
    fmt::print("{}", result.text);
    return result.status;
  } catch (const std::exception& error) {
    apps::print_error(program, error.what());
    return exit_code(error_code(error));
  }
}
